// Bottom-up search of a bitmap's open rows, by the words of the bitmap.
//
// A warp takes kSearchWords words (256 rows). First all of its open rows try their first neighbour, four words in flight;
// most rows stop there. The rows left over are packed, so that full warps search them (search/cuda/kernels/common/search.cuh), where one slow
// row would hold up 31 others. The first neighbour in the frontier is the parent. Edges are counted up to and with the
// parent.
#pragma once
#include "search/cuda/kernels/common/search.cuh"

namespace dbfs {

// Words of a bitmap that a warp settles at a time, and most threads of a block.
constexpr u32 kSearchWords = 8, kSearchThreads = 256;

// Return the bits of the rows that found a parent, in word `first` + lane for the first kSearchWords lanes, else 0. Call
// hit(row, parent) for each of these rows. All lanes of a warp call it.
//
// `known` has the bits of the lane's word that need no search, kAll for a lane without a word. `left` and `late` are the
// warp's own shared memory: kSearchWords * kLanes bytes, and kSearchWords words. `inspected` grows by the edges that the
// lane looked at.
template <typename Hit>
__device__ __forceinline__ u32 search_words(const i64* in_offsets, const u32* in_columns, const u32* frontier, u32 first,
                                            u32 known, u8* left, u32* late, u64& inspected, Hit hit) {
  const u32 lane = lane_id();
  u32 bits = 0, rows_left = 0;
  if (!__any_sync(kAll, known != kAll)) return 0;
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
      if (hits[j]) hit(row, ids[j]);
      const u32 found = __ballot_sync(kAll, hits[j]);
      if (lane == half + j) bits = found;
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
      hit(row, parent);
      atomicOr(&late[offset / kLanes], bit_of(offset));
    }
  }
  __syncwarp();
  if (lane < kSearchWords) bits |= late[lane];
  __syncwarp();
  return bits;
}

}  // namespace dbfs
