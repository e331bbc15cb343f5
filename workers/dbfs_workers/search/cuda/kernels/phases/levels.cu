// A level of the resident loop (search/levels/stepper.py) in one launch, for ranks that can't map each other's memory: top-down
// with the contraction of the own bin, bottom-up, and the bitmap of a queue. Every array belongs to this rank. The host
// moves the bins and the slices between levels.
#include "search/cuda/kernels/phases/edges.cuh"
#include "search/cuda/kernels/phases/lists.cuh"
#include "search/cuda/kernels/phases/search_words.cuh"
#include "generated/words.cuh"

namespace dbfs {

}  // namespace dbfs

// top-down: a lane visits an edge. A discovered vertex of this rank is labelled and queued; another rank's is appended
// to its owner's bin, the n_local places from owner * n_local on. Reads as `visit_edges` does, and one bit an edge;
// writes 4 bytes of bitmap a discovery, and 8 to 12 bytes (own) or 4 to 8 (other ranks').
extern "C" __global__ void dbfs_top_down(const u32* rows, const i64* starts, const i64* ends, i64 size,
                                         const u32* columns, u32 first_id, u32 n_local, u32* visited, u32* bin_rows,
                                         u32* bin_parents, i32 distance, i32* distances, u32* predecessors,
                                         u32* discovered, dbfs::Line* sums) {
  const u32 rank = first_id / n_local;
  dbfs::visit_edges({rows, starts, ends, size}, columns, [&](bool on, i64, u32 row, u32 neighbour) {
    dbfs::list_unseen(on, neighbour, n_local, visited, &sums[dbfs::kTopDownEnds], [&](u32 owner, u64 at, u32 found) {
      if (owner == rank) {
        distances[found] = distance;
        if (predecessors) predecessors[found] = first_id + row;
        discovered[at] = found;
      } else {
        const u64 place = (u64)owner * n_local + at;
        bin_rows[place] = found;
        if (predecessors) bin_parents[place] = first_id + row;
      }
    });
  });
  if (blockIdx.x == 0 && threadIdx.x == 0 && size) sums[dbfs::kTopDownEdges].value = ends[size - 1];
}

// bottom-up: warps search the slice, as `search_bitmap` does, and queue the rows found. Reads 4 bytes of bitmap a
// word, 16 bytes of offsets a row, 4 bytes and a bit an edge, 16 bytes of out-offsets a row found; writes 8 bytes a
// word, and 8 to 12 a row found.
extern "C" __global__ void dbfs_bottom_up(const i64* in_offsets, const u32* in_columns, const i64* out_offsets,
                                          u32 words, const u32* frontier, u32* visited, u32* found_bits, i32 distance,
                                          i32* distances, u32* predecessors, u32* discovered, dbfs::Line* sums) {
  using namespace dbfs;
  __shared__ SearchRoom room;
  u64 degrees = 0;
  search_bitmap(
      in_offsets, in_columns, frontier, nullptr, words, kOneList, visited, found_bits, &sums[kSearchVertices],
      &sums[kSearchSearched], room,
      [&](i64 row, u32 parent) {
        distances[row] = distance;
        if (predecessors) predecessors[row] = parent;
      },
      [&](u32, u64 at, u32 row) {
        discovered[at] = row;
        degrees += __ldg(&out_offsets[row + 1]) - __ldg(&out_offsets[row]);
      });
  add_sum(&sums[kSearchEdges].value, degrees);
}

// mark: sets the bits of a queue's rows in a bitmap that the host has cleared. A thread takes a row: reads 4 bytes,
// sets a bit.
extern "C" __global__ void dbfs_mark(const u32* rows, i64 size, u32* bits) {
  const i64 threads = (i64)gridDim.x * blockDim.x;
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += threads) {
    dbfs::set_bit(bits, rows[i]);
  }
}
