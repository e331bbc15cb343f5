// Bottom-up level (Beamer 2012): every row not yet known looks for a neighbour in the frontier bitmap.
//
// A warp settles kUnitWords words (256 rows). First all of its open rows try one in-neighbour, a hub, four words in
// flight: a dense array, 4 bytes a row, and in graphs with hubs nine of ten rows stop there. A unit with few open rows
// skips this, since most of them tried their hub in an earlier level. The rows left over are packed, so that the slow
// part runs with full warps (search/cuda/kernels/common/search.cuh). Without the packing one slow row held up 31 others,
// which was most of the level's time. The new words go to all ranks' frontier bitmaps, so one barrier ends the level.
// Reads n_local / 8 bytes of known rows, 4 bytes and a bit a row, then 16 bytes a row left over and 4 bytes and a bit an
// edge; writes 4 bytes a new row. Runs that count degrees also read 4 bytes a word.
#pragma once
#include "search/cuda/kernels/common/search.cuh"
#include "search/cuda/kernels/resident/merge.cuh"

namespace dbfs {

__device__ __forceinline__ void bottom_up(const Params& a, Block& b) {
  const u32 level = b.run.level, bitmap = b.run.bitmap;
  const u32 lane = lane_id(), warp = warp_in_block();
  const u32 words = (a.rows_used + 31) / 32, units = (words + kUnitWords - 1) / kUnitWords;
  const u32* frontier = a.peers[a.rank].frontier + (u64)bitmap * a.ranks * a.words_local;
  u8* offsets = b.open.offsets[warp];
  u32* late = b.open.found[warp];
  u64 discovered = 0, inspected = 0, edges = 0, targets = 0;

  for (u32 unit = warp_in_grid(); unit < units; unit += warps_in_grid()) {
    const u32 first = unit * kUnitWords, word = first + lane;
    const bool on = lane < kUnitWords && word < words;
    const u32 known = on ? a.known[word] : kAll, common = common_degree(a, on, word);
    u32 found = 0, open = 0;
    const u32 open_rows = warp_sum((u32)__popc(~known));
    if (open_rows) {
      if (lane < kUnitWords) late[lane] = 0;
      if (open_rows <= kLanes) {
        u32 at = scan_exclusive((u32)__popc(~known), open);
        for (u32 left = ~known; left; left &= left - 1) offsets[at++] = (u8)(lane * kLanes + __ffs(left) - 1);
      }
#pragma unroll
      for (u32 half = 0; half < kUnitWords && open_rows > kLanes; half += 4) {
        u32 ids[4];
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
          const bool unknown = !has_bit(__shfl_sync(kAll, known, half + j), lane);
          ids[j] = unknown ? load_stream(&a.hubs[(first + half + j) * kLanes + lane]) : kNoVertex;
        }
        bool hits[4];
#pragma unroll
        for (u32 j = 0; j < 4; ++j) hits[j] = ids[j] != kNoVertex && has_bit(frontier, ids[j]);
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
          if (hits[j]) label(a, (first + half + j) * kLanes + lane, level + 1, ids[j]);
          const u32 hit_ballot = __ballot_sync(kAll, hits[j]);
          if (lane == half + j) found = hit_ballot;
          const bool left = ids[j] != kNoVertex && !hits[j];
          const u32 ballot = __ballot_sync(kAll, left);
          if (left) offsets[open + __popc(ballot & lanes_below())] = (u8)((half + j) * kLanes + lane);
          open += __popc(ballot);
          inspected += hits[j];  // A hub tried in vain counts where the list is searched.
        }
      }
      __syncwarp();
      for (u32 k = 0; k < open; k += kLanes) {
        const u32 offset = k + lane < open ? offsets[k + lane] : 0;
        const u32 row = first * kLanes + offset;
        i64 begin = 0, end = 0;
        if (k + lane < open) {
          begin = __ldg(&a.in.offsets[row]);
          end = __ldg(&a.in.offsets[row + 1]);
        }
        const i64 start = begin;
        const u32 parent = search_rows<4, 2, false>(a.in.columns, frontier, begin, end);
        inspected += begin - start;
        if (parent != kNoVertex) {
          label(a, row, level + 1, parent);
          atomicOr(&late[offset >> 5], bit_of(offset));
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
      write_frontier(a, bitmap ^ 1, word, found);
      if (a.target_bits) targets += __popc(found & __ldg(&a.target_bits[word]));
    }
    discovered += __popc(found);
    if (counts_degrees(a)) edges += degrees_of(a, word, found, common);
  }
  add_total(b, kDiscovered, discovered);
  if (counts_degrees(a)) add_total(b, kEdges, edges);
  add_total(b, kInspected, inspected);
  if (a.target_bits) add_total(b, kTargets, targets);
}

}  // namespace dbfs
