// A level of the resident loop (levels/stepper.py) in one launch, for ranks that can't map each other's memory: top-down
// with the contraction of the own bin, bottom-up, and the bitmap of a queue. Every array belongs to this rank. The host
// moves the bins and the slices between levels.
#include "search/cuda/kernels/phases/edges.cuh"
#include "search/cuda/kernels/phases/reserve.cuh"
#include "search/cuda/kernels/phases/search_words.cuh"
#include "generated/words.cuh"

namespace dbfs {

constexpr u32 kNoOwner = 0xffffffffu;

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
    const bool won = on && dbfs::claim_unseen(visited, neighbour);
    if (!__any_sync(dbfs::kAll, won)) return;
    const u32 owner = won ? neighbour / n_local : dbfs::kNoOwner;
    const u32 same = __match_any_sync(dbfs::kAll, owner);
    if (!won) return;
    const u64 at = dbfs::reserve(&sums[dbfs::kTopDownEnds + owner].value, same);
    const u32 found = neighbour - owner * n_local;
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
  if (blockIdx.x == 0 && threadIdx.x == 0 && size) sums[dbfs::kTopDownEdges].value = ends[size - 1];
}

// bottom-up: a warp settles kSearchWords words of the slice (256 rows) at a time, as `search_words` does. The rows found
// are queued with one atomic for all of the words. Blocks have kSearchThreads threads at most. Reads 4 bytes of bitmap a
// word, 16 bytes of offsets a row, 4 bytes and a bit an edge, 16 bytes of out-offsets a row found; writes 8 bytes a
// word, and 8 to 12 a row found.
extern "C" __global__ void dbfs_bottom_up(const i64* in_offsets, const u32* in_columns, const i64* out_offsets,
                                          u32 words, const u32* frontier, u32* visited, u32* found_bits, i32 distance,
                                          i32* distances, u32* predecessors, u32* discovered, dbfs::Line* sums) {
  using namespace dbfs;
  __shared__ u8 left_rows[kSearchThreads / kLanes][kSearchWords * kLanes];
  __shared__ u32 late_bits[kSearchThreads / kLanes][kSearchWords];
  const u32 lane = lane_id();
  u8* left = left_rows[threadIdx.x / kLanes];
  u32* late = late_bits[threadIdx.x / kLanes];
  const u32 units = (words + kSearchWords - 1) / kSearchWords, warps = gridDim.x * (blockDim.x / kLanes);
  u64 inspected = 0, degrees = 0;
  for (u32 unit = warp_in_grid(); unit < units; unit += warps) {
    const u32 first = unit * kSearchWords, word = first + lane;
    const bool on = lane < kSearchWords && word < words;
    const u32 known = on ? visited[word] : kAll;
    const u32 bits = search_words(in_offsets, in_columns, frontier, first, known, left, late, inspected,
                                  [&](i64 row, u32 parent) {
                                    distances[row] = distance;
                                    if (predecessors) predecessors[row] = parent;
                                  });
    if (on) {
      found_bits[word] = bits;
      if (bits) visited[word] = known | bits;
    }
    u32 before = __popc(bits);
    for (u32 step = 1; step < kLanes; step <<= 1) {
      const u32 other = __shfl_up_sync(kAll, before, step);
      if (lane >= step) before += other;
    }
    const u32 total = __shfl_sync(kAll, before, kLanes - 1);
    if (!total) continue;
    u64 at = lane == 0 ? atomicAdd(&sums[kSearchVertices].value, (u64)total) : 0;
    at = __shfl_sync(kAll, at, 0);
    before -= __popc(bits);
    for (u32 k = 0; k < kSearchWords; ++k) {
      const u32 of_word = __shfl_sync(kAll, bits, k), place = __shfl_sync(kAll, before, k);
      if (!has_bit(of_word, lane)) continue;
      const u32 row = (first + k) * kLanes + lane;
      discovered[at + place + __popc(of_word & lanes_below())] = row;
      degrees += __ldg(&out_offsets[row + 1]) - __ldg(&out_offsets[row]);
    }
  }
  add_sum(&sums[kSearchSearched].value, inspected);
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
