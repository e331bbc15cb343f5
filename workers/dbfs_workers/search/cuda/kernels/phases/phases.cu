// The phases of a level as launches of their own, for search/backend.py: expand, filter + partition, contract.
// Frontiers and bins are arrays of exact length. The host reads the counts between the launches.
#include "search/cuda/kernels/common/culling.cuh"
#include "search/cuda/kernels/common/owner_bins.cuh"
#include "search/cuda/kernels/phases/edges.cuh"
#include "search/cuda/kernels/phases/reserve.cuh"

namespace dbfs {

// Warps of a block that makes bins, at most.
constexpr u32 kBinWarps = 8;

// The sum of `v` over the lanes up to and with this one.
__device__ __forceinline__ i64 scan_inclusive(i64 v) {
#pragma unroll
  for (u32 step = 1; step < kLanes; step <<= 1) {
    const i64 other = __shfl_up_sync(kAll, v, step);
    if (lane_id() >= step) v += other;
  }
  return v;
}

}  // namespace dbfs

// degrees: start and length of each list of a frontier, for `visit_edges`. A thread takes a row. Reads 4 + 16 bytes a
// row, writes 16.
extern "C" __global__ void dbfs_degrees(const i64* offsets, const u32* rows, i64 size, i64* starts, i64* degrees) {
  const i64 threads = (i64)gridDim.x * blockDim.x;
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += threads) {
    const i64 start = __ldg(&offsets[rows[i]]);
    starts[i] = start;
    degrees[i] = __ldg(&offsets[rows[i] + 1]) - start;
  }
}

// degree_sums: the same for at most one block of rows, with the running sums of the degrees in the same launch. A
// longer frontier needs a separate scan.
extern "C" __global__ void dbfs_degree_sums(const i64* offsets, const u32* rows, i64 size, i64* starts, i64* ends) {
  __shared__ i64 sums[dbfs::kLanes];
  const u32 i = threadIdx.x, warp = i / dbfs::kLanes;
  i64 start = 0, degree = 0;
  if (i < size) {
    start = __ldg(&offsets[rows[i]]);
    degree = __ldg(&offsets[rows[i] + 1]) - start;
  }
  const i64 in_warp = dbfs::scan_inclusive(degree);
  if (dbfs::lane_id() == dbfs::kLanes - 1) sums[warp] = in_warp;
  __syncthreads();
  if (warp == 0) {
    const i64 mine = dbfs::lane_id() < blockDim.x / dbfs::kLanes ? sums[dbfs::lane_id()] : 0;
    sums[dbfs::lane_id()] = dbfs::scan_inclusive(mine);
  }
  __syncthreads();
  if (i < size) {
    starts[i] = start;
    ends[i] = in_warp + (warp ? sums[warp - 1] : 0);
  }
}

// edge_count: the sum of the degrees. A thread takes a row, a warp adds once. Reads 4 + 16 bytes a row.
extern "C" __global__ void dbfs_edge_count(const i64* offsets, const u32* rows, i64 size, u64* sum) {
  u64 edges = 0;
  const i64 threads = (i64)gridDim.x * blockDim.x;
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += threads) {
    edges += __ldg(&offsets[rows[i] + 1]) - __ldg(&offsets[rows[i]]);
  }
  dbfs::add_sum(sum, edges);
}

// expand: writes each edge's neighbour, and its parent unless `parents` is null. A lane takes an edge. Reads as
// `visit_edges` does; writes 4 bytes an edge, or 8.
extern "C" __global__ void dbfs_expand(const u32* rows, const i64* starts, const i64* ends, i64 size,
                                       const u32* columns, u32 first_id, u32* neighbours, u32* parents) {
  dbfs::visit_edges({rows, starts, ends, size}, columns, [&](bool on, i64 edge, u32 row, u32 neighbour) {
    if (!on) return;
    neighbours[edge] = neighbour;
    if (parents) parents[edge] = first_id + row;
  });
}

// count_by_owner, the filter: drops neighbours that the bitmap over all vertices has as visited and, as far as a warp or a
// block sees them, duplicates; marks the rest, and counts them by owner. Reads 4 bytes and a byte of the bitmap an edge,
// writes 1.
extern "C" __global__ void dbfs_count_by_owner(const u32* neighbours, i64 edges, u32* visited, u32 n_local, u32 ranks,
                                               u8* owners, u64* counts) {
  using namespace dbfs;
  __shared__ CullTables<kBinWarps> tables;
  __shared__ OwnerCounts<kBinWarps> by_owner;
  u8* const bitmask = (u8*)visited;
  start_culling(tables);
  count_by_owner(neighbours, edges, n_local, ranks, by_owner, owners, counts, [&](bool valid, u32 id) {
    const bool seen = !valid || marked_or_mark(bitmask, id, marks_beside(bitmask, id));
    const bool repeated = culled_by_warp(!seen, id, tables);
    return !(seen || repeated || culled_by_history(true, id, tables));
  });
}

// copy_to_bins, the partition: copies the neighbours that were counted into their owners' bins, as rows of the owners.
// Reads 1 byte an edge and 4 a kept neighbour (8 with parents), writes 4 (8).
extern "C" __global__ void dbfs_copy_to_bins(const u32* neighbours, const u32* parents, const u8* owners, i64 edges,
                                             u32 n_local, u32 ranks, const u64* ends, u32* rows, u32* row_parents) {
  using namespace dbfs;
  __shared__ OwnerPlaces<kBinWarps> by_owner;
  copy_to_bins(edges, ranks, owners, ends, by_owner, [&](u64 from, u64 to, u32 owner) {
    rows[to] = neighbours[from] - owner * n_local;
    if (row_parents) row_parents[to] = parents[from];
  });
}

// contract: a thread labels one row of a bin and queues it if it is new. `visited` is the rank's own slice of the bitmap,
// which tells what is new in a peer's bin. The rows of the own bin (`own`) were marked when it was made, but a mark may be
// lost, and a row may be there twice: there the label tells. Reads 4 bytes (8 with parents) and a bit or a label a row,
// writes 8 (12).
extern "C" __global__ void dbfs_contract(const u32* rows, const u32* row_parents, i64 size, u32* visited, u32 own,
                                         i32 distance, i32* distances, u32* predecessors, u32* discovered, u64* count) {
  const i32 unreached = -1;
  const i64 threads = (i64)gridDim.x * blockDim.x;
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += threads) {
    const u32 row = rows[i];
    if (own) {
      if (atomicCAS(&distances[row], unreached, distance) != unreached) continue;
      dbfs::set_bit(visited, row);
    } else {
      if (!dbfs::claim_unseen(visited, row)) continue;
      distances[row] = distance;
    }
    if (predecessors) predecessors[row] = row_parents[i];
    discovered[dbfs::reserve(count, __activemask())] = row;
  }
}
