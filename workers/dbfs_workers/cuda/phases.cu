// The phases of a level as separate launches, for the taskgraph engine: what backends/protocol.py asks for, on arrays
// of one rank. Bins and frontiers are arrays of exact length here; the host sizes them between launches.
#include "memory.cuh"

namespace dbfs {

constexpr u8 kDropped = 0xff;

}  // namespace dbfs

// expand: a thread writes one neighbour; it finds its vertex by binary search in the running sum of the degrees
// (Merrill 2012, section 4: gathering by scan). Reads 4 bytes an edge and, mostly from cache, log2(frontier) sums;
// writes 4, or 8 with parents.
//   starts: [size] where each frontier vertex's list begins in columns; ends: [size] inclusive sums of the degrees.
extern "C" __global__ void dbfs_expand(const u32* frontier, const i64* starts, const i64* ends, i64 size,
                                       const u32* columns, u32 first_id, u32* neighbours, u32* parents, i64 edges) {
  const i64 threads = (i64)gridDim.x * blockDim.x;
  for (i64 edge = (i64)blockIdx.x * blockDim.x + threadIdx.x; edge < edges; edge += threads) {
    i64 low = 0, high = size - 1;
    while (low < high) {
      const i64 middle = (low + high) / 2;
      if (__ldg(&ends[middle]) <= edge) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    const i64 before = low ? __ldg(&ends[low - 1]) : 0;
    neighbours[edge] = dbfs::load_stream(&columns[__ldg(&starts[low]) + edge - before]);
    if (parents) parents[edge] = first_id + __ldg(&frontier[low]);
  }
}

// filter: a thread claims one neighbour in the bitmap over all vertices; owners[i] is its owner, or 255 where it was
// visited or came twice. Counts by owner are summed in shared memory first. Reads 4 bytes and a word an edge, writes 1.
extern "C" __global__ void dbfs_filter(const u32* neighbours, i64 edges, u32* visited, u32 n_local, u32 ranks,
                                       u8* owners, u64* counts) {
  __shared__ u32 sums[256];
  for (u32 i = threadIdx.x; i < ranks; i += blockDim.x) sums[i] = 0;
  __syncthreads();
  const i64 threads = (i64)gridDim.x * blockDim.x;
  for (i64 edge = (i64)blockIdx.x * blockDim.x + threadIdx.x; edge < edges; edge += threads) {
    const u32 id = dbfs::load_stream(&neighbours[edge]);
    bool won = !(visited[id >> 5] >> (id & 31) & 1);
    if (won) won = dbfs::claim(visited, id);
    const u32 owner = won ? id / n_local : dbfs::kDropped;
    owners[edge] = (u8)owner;
    if (won) atomicAdd(&sums[owner], 1u);
  }
  __syncthreads();
  for (u32 i = threadIdx.x; i < ranks; i += blockDim.x) {
    if (sums[i]) atomicAdd(&counts[i], (u64)sums[i]);
  }
}

// partition: a thread puts one kept neighbour into its owner's bin, as a row there. `cursors` start at the bins'
// offsets; a warp reserves once for each owner among its lanes. Reads 5 bytes an edge, writes 4 (8 with parents) a
// vertex kept.
extern "C" __global__ void dbfs_partition(const u32* neighbours, const u32* parents, const u8* owners, i64 edges,
                                          u32 n_local, u64* cursors, u32* rows, u32* row_parents) {
  const i64 threads = (i64)gridDim.x * blockDim.x;
  for (i64 edge = (i64)blockIdx.x * blockDim.x + threadIdx.x; edge < edges; edge += threads) {
    const u32 owner = owners[edge];
    if (owner == dbfs::kDropped) continue;
    const u32 same = __match_any_sync(__activemask(), owner);
    const u32 first = __ffs(same) - 1;
    u64 at = 0;
    if (dbfs::lane_id() == first) at = atomicAdd(&cursors[owner], (u64)__popc(same));
    at = __shfl_sync(same, at, first) + __popc(same & dbfs::lanes_below());
    rows[at] = neighbours[edge] - owner * n_local;
    if (row_parents) row_parents[at] = parents[edge];
  }
}

// contract: a thread labels one row of a bin; kept[i] says whether it was new. `visited` is the rank's own slice, or
// null for the rank's own bin, whose rows are all new. Reads 4 bytes a row (8 with parents), writes 5 (9).
extern "C" __global__ void dbfs_contract(const u32* rows, const u32* row_parents, i64 size, u32* visited, i32 distance,
                                         i32* distances, u32* predecessors, u8* kept) {
  const i64 threads = (i64)gridDim.x * blockDim.x;
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += threads) {
    const u32 row = rows[i];
    const bool won = !visited || dbfs::claim(visited, row);
    kept[i] = won;
    if (!won) continue;
    distances[row] = distance;
    if (predecessors) predecessors[row] = row_parents[i];
  }
}
