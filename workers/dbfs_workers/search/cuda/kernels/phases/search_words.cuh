// Bottom-up search of a bitmap's open rows, by the words of the bitmap.
//
// A warp takes kSearchWords words (256 rows). First all of its open rows try their first neighbour, four words in flight;
// most rows stop there. The rows left over are packed, so that full warps search them (search/cuda/kernels/common/search.cuh), where one slow
// row would hold up 31 others. The first neighbour in the frontier is the parent. Edges are counted up to and with the
// parent.
#pragma once
#include "search/cuda/kernels/common/search.cuh"
#include "search/cuda/kernels/phases/reserve.cuh"

namespace dbfs {

// Words of a bitmap that a warp settles at a time, and most threads of a block.
constexpr u32 kSearchWords = 8, kSearchThreads = 256;

// Words of a list's owner, if one list takes all rows.
constexpr u32 kOneList = 0xffffffffu;

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

// What the warps of a block search in, in shared memory.
struct SearchRoom {
  u8 left[kSearchThreads / kLanes][kSearchWords * kLanes];
  u32 late[kSearchThreads / kLanes][kSearchWords];
};

// Settle all words of a bitmap, kSearchWords (256 rows) a warp at a time. The rows found are listed by owner, who has
// `list_words` words, with one atomic for all of the words, or one a word where these are of several owners. Blocks have
// kSearchThreads threads at most.
//
// `empty` has the bits of rows that are not searched, `found_bits` takes the bits of those found; null for none. `ends` has
// a sum for each owner. hit(row, parent) is called for each row found, then found(owner, place, row).
template <typename Hit, typename Found>
__device__ __forceinline__ void search_bitmap(const i64* in_offsets, const u32* in_columns, const u32* frontier,
                                              const u32* empty, u32 words, u32 list_words, u32* visited,
                                              u32* found_bits, Line* ends, Line* edges, SearchRoom& room, Hit hit,
                                              Found found) {
  const u32 lane = lane_id();
  u8* left = room.left[threadIdx.x / kLanes];
  u32* late = room.late[threadIdx.x / kLanes];
  const u32 units = (words + kSearchWords - 1) / kSearchWords, warps = gridDim.x * (blockDim.x / kLanes);
  u64 inspected = 0;
  for (u32 unit = warp_in_grid(); unit < units; unit += warps) {
    const u32 first = unit * kSearchWords, word = first + lane;
    const bool on = lane < kSearchWords && word < words;
    const u32 seen = on ? visited[word] : kAll;
    const u32 known = on && empty ? seen | empty[word] : seen;
    const u32 bits = search_words(in_offsets, in_columns, frontier, first, known, left, late, inspected, hit);
    if (on && found_bits) found_bits[word] = bits;
    if (bits) visited[word] = seen | bits;
    u32 before = __popc(bits);
    for (u32 step = 1; step < kLanes; step <<= 1) {
      const u32 other = __shfl_up_sync(kAll, before, step);
      if (lane >= step) before += other;
    }
    const u32 total = __shfl_sync(kAll, before, kLanes - 1);
    if (!total) continue;
    const u32 last = first + kSearchWords < words ? first + kSearchWords - 1 : words - 1;
    const u32 owner = first / list_words;
    u64 at = 0;
    if (last / list_words == owner) {
      if (lane == 0) at = atomicAdd(&ends[owner].value, (u64)total);
      at = __shfl_sync(kAll, at, 0) + before - __popc(bits);
    } else if (bits) {
      at = atomicAdd(&ends[word / list_words].value, (u64)__popc(bits));
    }
    for (u32 k = 0; k < kSearchWords; ++k) {
      const u32 of_word = __shfl_sync(kAll, bits, k);
      const u64 begin = __shfl_sync(kAll, at, k);
      if (!has_bit(of_word, lane)) continue;
      found((first + k) / list_words, begin + __popc(of_word & lanes_below()), (first + k) * kLanes + lane);
    }
  }
  add_sum(&edges->value, inspected);
}

}  // namespace dbfs
