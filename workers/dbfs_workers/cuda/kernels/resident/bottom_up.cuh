// Bottom-up level (Beamer 2012): every row not yet known looks for a neighbour in the frontier bitmap.
//
// A warp settles kUnitWords words (256 rows). First all its open rows try their first in-neighbour, four words in
// flight: a dense array, 4 bytes a row, and with hub-first lists nine of ten stop there. The rows left over are packed,
// so that the slow part runs with full warps: a lane tries kSerialEdges more neighbours alone, then the warp helps each
// row left. Before the packing one slow row held up 31 others; that was most of the level's time. The new words go to
// all ranks' frontier bitmaps, so that one barrier ends the level. Reads n_local / 8 bytes, 4 bytes and a bit a row,
// then 16 + 4 bytes and a bit an edge; writes 4 bytes a new row.
#pragma once
#include "resident/merge.cuh"

namespace dbfs {

__device__ __forceinline__ bool in_frontier(const u32* frontier, u32 id) { return frontier[id >> 5] >> (id & 31) & 1; }

// Tries columns[begin, end) four at a time. Returns the parent or kNoVertex; `begin` is behind the last one tried then.
__device__ __forceinline__ u32 search_alone(const Csr& in, const u32* frontier, i64& begin, i64 end) {
  constexpr u32 kInFlight = 4;
  while (begin < end) {
    u32 ids[kInFlight], hits = 0;
#pragma unroll
    for (u32 j = 0; j < kInFlight; ++j) ids[j] = begin + j < end ? __ldg(&in.columns[begin + j]) : kNoVertex;
#pragma unroll
    for (u32 j = 0; j < kInFlight; ++j) hits |= (ids[j] != kNoVertex && in_frontier(frontier, ids[j])) << j;
    if (hits) {
      begin += __ffs(hits);
      u32 parent = ids[0];
#pragma unroll
      for (u32 j = kInFlight; j-- > 0;) {
        if (hits >> j & 1) parent = ids[j];
      }
      return parent;
    }
    begin = begin + kInFlight < end ? begin + kInFlight : end;
  }
  return kNoVertex;
}

// The warp tries one row's columns[begin, end), 64 at a time; the same otherwise.
__device__ __forceinline__ u32 search_together(const Csr& in, const u32* frontier, i64& begin, i64 end) {
  while (begin < end) {
    const i64 one = begin + lane_id(), two = one + kLanes;
    begin = begin + 2 * kLanes < end ? begin + 2 * kLanes : end;
    const u32 id = one < end ? __ldg(&in.columns[one]) : kNoVertex;
    const u32 other = two < end ? __ldg(&in.columns[two]) : kNoVertex;
    const bool hit = id != kNoVertex && in_frontier(frontier, id);
    const bool other_hit = other != kNoVertex && in_frontier(frontier, other);
    const u32 ballot = __ballot_sync(kAll, hit || other_hit);
    if (ballot) return __shfl_sync(kAll, hit ? id : other, __ffs(ballot) - 1);
  }
  return kNoVertex;
}

__device__ __forceinline__ void bottom_up(const Params& a, Block& b) {
  const u32 level = b.run.level, turn = b.run.turn;
  const u32 lane = lane_id(), warp = warp_in_block();
  const u32 words = (a.rows_used + 31) / 32, units = (words + kUnitWords - 1) / kUnitWords;
  const u32* frontier = a.peers[a.rank].frontier + (u64)turn * a.ranks * a.words_local;
  u8* offsets = b.open.offsets[warp];
  u32* late = b.open.found[warp];
  u64 discovered = 0, inspected = 0, targets = 0;

  for (u32 unit = warp_in_grid(); unit < units; unit += warps_in_grid()) {
    const u32 first = unit * kUnitWords, word = first + lane;
    const bool on = lane < kUnitWords && word < words;
    const u32 known = on ? a.known[word] : kAll;
    u32 found = 0, open = 0;
    if (__any_sync(kAll, known != kAll)) {
      if (lane < kUnitWords) late[lane] = 0;
#pragma unroll
      for (u32 half = 0; half < kUnitWords; half += 4) {
        u32 ids[4];
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
          const bool unknown = !(__shfl_sync(kAll, known, half + j) >> lane & 1);
          ids[j] = unknown ? load_stream(&a.first_in[(first + half + j) * kLanes + lane]) : kNoVertex;
        }
        bool hits[4];
#pragma unroll
        for (u32 j = 0; j < 4; ++j) hits[j] = ids[j] != kNoVertex && in_frontier(frontier, ids[j]);
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
          if (hits[j]) label(a, (first + half + j) * kLanes + lane, level + 1, ids[j]);
          const u32 hit_ballot = __ballot_sync(kAll, hits[j]);
          if (lane == half + j) found = hit_ballot;
          const bool left = ids[j] != kNoVertex && !hits[j];
          const u32 ballot = __ballot_sync(kAll, left);
          if (left) offsets[open + __popc(ballot & lanes_below())] = (u8)((half + j) * kLanes + lane);
          open += __popc(ballot);
          inspected += ids[j] != kNoVertex;
        }
      }
      __syncwarp();
      for (u32 k = 0; k < open; k += kLanes) {
        const u32 offset = k + lane < open ? offsets[k + lane] : 0;
        const u32 row = first * kLanes + offset;
        i64 begin = 0, end = 0;
        if (k + lane < open) {
          begin = __ldg(&a.in.offsets[row]) + 1;  // the first was tried
          end = __ldg(&a.in.offsets[row + 1]);
        }
        const i64 start = begin;
        u32 parent = search_alone(a.in, frontier, begin, begin + kSerialEdges < end ? begin + kSerialEdges : end);
        inspected += begin - start;
        for (u32 rest = __ballot_sync(kAll, parent == kNoVertex && begin < end); rest; rest &= rest - 1) {
          const u32 from = __ffs(rest) - 1;
          const i64 rest_end = __shfl_sync(kAll, end, from);
          i64 rest_begin = __shfl_sync(kAll, begin, from);
          const u32 answer = search_together(a.in, frontier, rest_begin, rest_end);
          if (lane == from) {
            parent = answer;
            inspected += rest_begin - begin;
          }
        }
        if (parent != kNoVertex) {
          label(a, row, level + 1, parent);
          atomicOr(&late[offset >> 5], 1u << (offset & 31));
        }
      }
      __syncwarp();
      if (lane < kUnitWords) found |= late[lane];
      __syncwarp();
    }
    if (on) {
      if (found) {
        a.known[word] = known | found;
        a.peers[a.rank].visited[a.rank * a.words_local + word] = known | found;
      }
      write_frontier(a, turn ^ 1, word, found);
      if (a.target_bits) targets += __popc(found & __ldg(&a.target_bits[word]));
    }
    discovered += __popc(found);
  }
  add_total(b, kDiscovered, discovered);
  add_total(b, kInspected, inspected);
  if (a.target_bits) add_total(b, kTargets, targets);
}

}  // namespace dbfs
