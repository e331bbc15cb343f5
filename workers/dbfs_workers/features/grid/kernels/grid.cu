// The operators of a level on a 2-D partition (features/grid/levels.py), a launch each. Every array belongs to this rank; the
// host moves the messages between the launches.
//
// A place numbers the vertices of the rank's row of the grid, or of its column: `n_local` places for each rank there, in
// the order of the ranks. A search goes from the column's frontier to the row's vertices. What it finds is listed by
// owner: list `c`, of the rank in column `c` of the row, begins at c * n_local.
#include "search/cuda/kernels/phases/edges.cuh"
#include "search/cuda/kernels/phases/lists.cuh"
#include "search/cuda/kernels/phases/search_words.cuh"

namespace dbfs {

// Sums of a search, each on a cache line of its own (`Line`): the edges, and from kFoundEnds on the length of each list.
enum GridSearchSum : u32 { kGridEdges = 0, kFoundEnds };

// Sums of a contraction: the vertices queued, and their degrees.
enum GridContractSum : u32 { kQueued = 0, kQueuedDegrees };

// The rank's column of the grid.
struct GridColumn {
  u32 column, columns, n_local;

  // The internal id of the vertex at a place of this column.
  __device__ __forceinline__ u32 internal_id(u32 place) const {
    const u32 row = place / n_local;
    return place + (row * columns + column - row) * n_local;
  }
};

// What a top-down search finds among the row's places.
struct GridFinds {
  GridColumn grid;
  u32* visited;
  u32* parents;
  u32* found;
  Line* sums;

  // Claim a place for each lane that is `on`, and list it by owner. All lanes of a warp call it together.
  __device__ __forceinline__ void take(bool on, u32 place, u32 source) const {
    list_unseen(on, place, grid.n_local, visited, &sums[kFoundEnds], [&](u32 owner, u64 at, u32 local) {
      found[(u64)owner * grid.n_local + at] = local;
      if (parents) parents[place] = grid.internal_id(source);
    });
  }
};

}  // namespace dbfs

// top-down: a lane visits an edge, and claims its end in the bitmap over the row's places. `row_first` is the internal id
// of the row's first place. Reads as `visit_edges` does, and one bit an edge; writes 4 bytes of bitmap a discovery, and 4
// (8 with parents) beside.
extern "C" __global__ void dbfs_grid_top_down(const u32* places, const i64* starts, const i64* ends, i64 size,
                                              const u32* columns, u32 row_first, u32 grid_column, u32 grid_columns,
                                              u32 n_local, u32* visited, u32* parents, u32* found, dbfs::Line* sums) {
  const dbfs::GridFinds finds{{grid_column, grid_columns, n_local}, visited, parents, found, sums};
  dbfs::visit_edges({places, starts, ends, size}, columns, [&](bool on, i64, u32 source, u32 neighbour) {
    finds.take(on, neighbour - row_first, source);
  });
  if (blockIdx.x == 0 && threadIdx.x == 0 && size) sums[dbfs::kGridEdges].value = ends[size - 1];
}

// enlist: the same by a queue of bits (Krajecki 2016, algorithm 3). A warp takes a word of the column's bitmap, and leaves
// an empty one at once. Each lane has the list of one bit, and one lane after another enlists the warp for its list. Reads
// a bit a vertex of the column, 16 bytes a list, and 4 bytes and a bit an edge; writes as `top_down` does.
extern "C" __global__ void dbfs_grid_enlist(const i64* row_offsets, const u32* columns, const u32* frontier, u32 words,
                                            u32 row_first, u32 grid_column, u32 grid_columns, u32 n_local, u32* visited,
                                            u32* parents, u32* found, dbfs::Line* sums) {
  using namespace dbfs;
  const GridFinds finds{{grid_column, grid_columns, n_local}, visited, parents, found, sums};
  const u32 lane = lane_id(), warps = gridDim.x * (blockDim.x / kLanes);
  u64 inspected = 0;
  for (u32 at = warp_in_grid(); at < words; at += warps) {
    const u32 word = frontier[at];
    if (!word) continue;
    const u32 own = at * kLanes + lane;
    const bool listed = has_bit(word, lane);
    const i64 begin = listed ? row_offsets[own] : 0, end = listed ? row_offsets[own + 1] : 0;
    inspected += end - begin;
    for (u32 rest = word; rest; rest &= rest - 1) {
      const u32 from = __ffs(rest) - 1;
      const i64 past = __shfl_sync(kAll, end, from);
      for (i64 first = __shfl_sync(kAll, begin, from); first < past; first += kLanes) {
        const bool on = first + lane < past;
        finds.take(on, on ? load_stream(&columns[first + lane]) - row_first : 0, at * kLanes + from);
      }
    }
  }
  add_sum(&sums[kGridEdges].value, inspected);
}

// bottom-up: warps search the row's bitmap, as `search_bitmap` does. `in_columns` and `frontier` are over the column's
// places. `empty` has the bits of the rows without edges here, which are not searched. Reads 8 bytes of bitmaps a word, 16
// bytes of offsets a row, 4 bytes and a bit an edge; writes 4 bytes a word with a row found, and 4 (8 with parents) a row
// found.
extern "C" __global__ void dbfs_grid_bottom_up(const i64* in_offsets, const u32* in_columns, const u32* frontier,
                                               const u32* empty, u32 words, u32 grid_column, u32 grid_columns,
                                               u32 n_local, u32* visited, u32* parents, u32* found, dbfs::Line* sums) {
  using namespace dbfs;
  const GridColumn grid{grid_column, grid_columns, n_local};
  __shared__ SearchRoom room;
  search_bitmap(
      in_offsets, in_columns, frontier, empty, words, n_local / kLanes, visited, nullptr, &sums[kFoundEnds],
      &sums[kGridEdges], room,
      [&](i64 row, u32 source) {
        if (parents) parents[row] = grid.internal_id(source);
      },
      [&](u32 owner, u64 at, u32 row) { found[(u64)owner * n_local + at] = row - owner * n_local; });
}

// contract: a thread labels one of the rank's own rows that the rank in column `finder` found, and queues it if it is new.
// `visited` is the rank's own slice, or null for what this rank found itself, which is new. Reads 4 bytes and a bit a row,
// 8 bytes of degrees a new one; writes 10 bytes a new one.
extern "C" __global__ void dbfs_grid_contract(const u32* rows, i64 size, u32* visited, u32 finder, i32 distance,
                                              i32* distances, unsigned short* finders, u32* queue, const i64* degrees,
                                              dbfs::Line* sums) {
  const i64 threads = (i64)gridDim.x * blockDim.x;
  u64 edges = 0;
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += threads) {
    const u32 row = rows[i];
    if (visited && !dbfs::claim_unseen(visited, row)) continue;
    distances[row] = distance;
    finders[row] = (unsigned short)finder;
    queue[dbfs::reserve(&sums[dbfs::kQueued].value, __activemask())] = row;
    edges += __ldg(&degrees[row]);
  }
  dbfs::add_sum(&sums[dbfs::kQueuedDegrees].value, edges);
}

// count_bits: a thread counts the bits of a word. Reads 4 bytes a word, writes 8.
extern "C" __global__ void dbfs_grid_count_bits(const u32* bits, i64 words, i64* counts) {
  const i64 threads = (i64)gridDim.x * blockDim.x;
  for (i64 w = (i64)blockIdx.x * blockDim.x + threadIdx.x; w < words; w += threads) counts[w] = __popc(bits[w]);
}

// unpack: a thread lists the bits of a word, ascending; `ends` has the running sums of the words' counts. Reads 12 bytes a
// word, writes 4 a bit.
extern "C" __global__ void dbfs_grid_unpack(const u32* bits, i64 words, const i64* ends, u32* rows) {
  const i64 threads = (i64)gridDim.x * blockDim.x;
  for (i64 w = (i64)blockIdx.x * blockDim.x + threadIdx.x; w < words; w += threads) {
    u32 todo = bits[w];
    for (i64 at = ends[w] - __popc(todo); todo; todo &= todo - 1) rows[at++] = (u32)w * dbfs::kLanes + __ffs(todo) - 1;
  }
}
