// A level of the resident loop (levels/loop.py) in one launch, for ranks that can't map each other's memory: top-down
// with the contraction of the own bin, bottom-up, and the bitmap of a queue. Every array belongs to this rank. The host
// moves the bins and the slices between levels.
#include "common/search.cuh"
#include "phases/edges.cuh"
#include "phases/reserve.cuh"

namespace dbfs {

// Sums of a level, each on a cache line of its own (`Line`). From kBinEnds on there is one for each owner: the vertices
// in its bin, or this rank's own discoveries.
enum TopDownSum : u32 { kTopDownEdges = 0, kBinEnds };
enum BottomUpSum : u32 { kBottomUpEdges = 0, kFound, kDegrees };

constexpr u32 kNoOwner = 0xffffffffu;

// Bottom-up: words of a bitmap that a warp settles at a time, and most threads of a block.
constexpr u32 kSearchWords = 8, kSearchThreads = 256;

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
    const u64 at = dbfs::reserve(&sums[dbfs::kBinEnds + owner].value, same);
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

// bottom-up: a warp settles kSearchWords words of the slice (256 rows). First all of its open rows try their first
// neighbour, four words in flight; most rows stop there. The rows left over are packed, so that full warps search them
// (common/search.cuh), where one slow row would hold up 31 others. The rows found are queued with one atomic for all of
// the words. The first neighbour in the frontier is the parent. Edges are counted up to and with the parent. Blocks
// have kSearchThreads threads at most. Reads 4 bytes of bitmap a word, 16 bytes of offsets a row, 4 bytes and a bit an
// edge, 16 bytes of out-offsets a row found; writes 8 bytes a word, and 8 to 12 a row found.
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
    u32 bits = 0, rows_left = 0;
    if (__any_sync(kAll, known != kAll)) {
      if (lane < kSearchWords) late[lane] = 0;
      for (u32 half = 0; half < kSearchWords; half += 4) {
        u32 ids[4];
        bool more[4], hits[4];
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
          const i64 row = (i64)(first + half + j) * kLanes + lane;
          const bool open = !has_bit(__shfl_sync(kAll, known, half + j), lane);
          const i64 begin = open ? __ldg(&in_offsets[row]) : 0, end = open ? __ldg(&in_offsets[row + 1]) : 0;
          ids[j] = begin < end ? __ldg(&in_columns[begin]) : kNoVertex;
          more[j] = begin + 1 < end;
        }
#pragma unroll
        for (u32 j = 0; j < 4; ++j) hits[j] = ids[j] != kNoVertex && has_bit(frontier, ids[j]);
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
          const i64 row = (i64)(first + half + j) * kLanes + lane;
          if (hits[j]) {
            distances[row] = distance;
            if (predecessors) predecessors[row] = ids[j];
          }
          const u32 hit = __ballot_sync(kAll, hits[j]);
          if (lane == half + j) bits = hit;
          const bool late_row = more[j] && !hits[j];
          const u32 ballot = __ballot_sync(kAll, late_row);
          if (late_row) left[rows_left + __popc(ballot & lanes_below())] = (u8)((half + j) * kLanes + lane);
          rows_left += __popc(ballot);
          inspected += ids[j] != kNoVertex;
        }
      }
      __syncwarp();
      for (u32 k = 0; k < rows_left; k += kLanes) {
        const bool searches = k + lane < rows_left;
        const u32 offset = searches ? left[k + lane] : 0;
        const i64 row = (i64)first * kLanes + offset;
        // The first neighbour was tried above.
        i64 at = searches ? __ldg(&in_offsets[row]) + 1 : 0;
        const i64 end = searches ? __ldg(&in_offsets[row + 1]) : 0;
        const i64 begin = at;
        const u32 parent = search_rows<4, 1, true>(in_columns, frontier, at, end);
        inspected += at - begin;
        if (parent != kNoVertex) {
          distances[row] = distance;
          if (predecessors) predecessors[row] = parent;
          atomicOr(&late[offset / kLanes], bit_of(offset));
        }
      }
      __syncwarp();
      if (lane < kSearchWords) bits |= late[lane];
      __syncwarp();
    }
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
    u64 at = lane == 0 ? atomicAdd(&sums[kFound].value, (u64)total) : 0;
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
  add_sum(&sums[kBottomUpEdges].value, inspected);
  add_sum(&sums[kDegrees].value, degrees);
}

// mark: sets the bits of a queue's rows in a bitmap that the host has cleared. A thread takes a row: reads 4 bytes,
// sets a bit.
extern "C" __global__ void dbfs_mark(const u32* rows, i64 size, u32* bits) {
  const i64 threads = (i64)gridDim.x * blockDim.x;
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += threads) {
    dbfs::set_bit(bits, rows[i]);
  }
}
