// The records of levels, written into host memory while the kernel runs.
//
// One thread of block 0 notes the end of a level. At the next barrier, while the block waits, its last warp reports the
// level (this warp is the last with neighbours to fetch meanwhile): no step waits for the writes over PCIe. The records
// are a ring that the host empties while the kernel runs. Before the warp fills a half of the ring again it reads how
// many records the host has taken, a read over PCIe of about 1 us. If the host has not taken that half, the level
// waits: a record may be late, and is never lost.
#pragma once
#include "search/cuda/kernels/resident/queue.cuh"
#include "search/cuda/kernels/resident/watch.cuh"

namespace dbfs {

// Note the end of a level. The thread that ends the level calls it.
__device__ __forceinline__ void note_level(Block& b) {
  if (blockIdx.x != 0) return;
  const u64 now = clock64();
  b.level_cycles[b.run.level & 1] = now - b.level_began;
  b.level_modes[b.run.level & 1] = b.run.mode;
  b.level_began = now;
  b.ended = b.run.level + 1;
}

constexpr u32 kRecordWords = kGang ? kRecordWordsGang : kRecordWordsSingle;

__device__ __forceinline__ u64 record_word(u32 level, u64 value) {
  return (u64)(level & kTagLevel | kTagSet) << kTagShift | value;
}

// Wait until the host has taken the records of this half of the ring; the whole warp calls it at the half's first
// level. False: the run was given up.
__device__ __noinline__ bool await_room(const Params& a, const Block& b, u32 level) {
  bool room = true;
  if (lane_id() == 0) {
    u32 spins = 0;
    while (room && load_relaxed_sys(&a.host->drained) + a.stats_capacity < level + a.stats_capacity / 2) {
      if ((++spins & 63) == 0) room = keep_waiting(a, b, spins);
    }
  }
  return __shfl_sync(kAll, room, 0);
}

// Report the next noted level, and clear its counters: all of their readers are done, and the next step that counts
// there is two barriers away. Each field of the record has a lane, so that all fields together cost one trip to L2. A
// warp of one block calls it: as a function it leaves the other blocks a shorter loop, a tenth quicker over a table.
__device__ __noinline__ void report_noted(const Params& a, Block& b) {
  const u32 level = b.reported, lane = lane_id();
  const bool due = b.noted > level;
  __syncwarp();
  if (!due) return;
  const bool next_half = level >= a.stats_capacity && (level & (a.stats_capacity / 2 - 1)) == 0;
  if (next_half && !await_room(a, b, level)) return;
  Slot* slots = a.control->slots;
  Slot* made = &slots[(level + 1) % kLevelSlots];
  Slot* spent = &slots[level % kLevelSlots];
  Slot* settled = &slots[kLevelSlots + level % kSettleSlots];
  const Mode mode = b.level_modes[level & 1];
  u64 value = 0, sent = 0;
  if (lane < 3 || lane == 5) {
    const u32 total = lane == 0 ? kExpanded : lane == 1 ? kInspected : lane == 2 ? kDiscovered : kEdges;
    value = load_relaxed(&made->lines[kTotals + total].value);
  }
  // Light levels of several ranks count the vertices that they take. Other levels start with a counted frontier.
  if (lane == 0 && !(kGang && mode == Mode::kLight)) value = b.level_frontier[level & 1];
  // Light levels of a rank without peers count discoveries in the barrier word only.
  if (lane == 2 && mode == (kGang ? Mode::kLeader : Mode::kLight)) value = b.level_found[level & 1];
  if (lane == 3) value = b.level_cycles[level & 1];
  if (lane == 4) value = (u64)mode;
  if (kGang) {
    static_assert(kMaxRanks == 8, "a lane a rank, summed over lanes 0 to 7");
    if (lane < kMaxRanks) sent = load_relaxed(&made->lines[kSent + lane].value);
#pragma unroll
    for (u32 step = kMaxRanks / 2; step; step >>= 1) sent += __shfl_xor_sync(kAll, sent, step);
    if (lane == 6) value = sent;
    if (lane == 7) value = b.level_found[level & 1];
  }
  u64* const record = (u64*)&a.host->records[level & (a.stats_capacity - 1)];
  if (lane < kRecordWords) store_relaxed_sys(record + lane, record_word(level, value));
  if (lane == kRecordWords) store_relaxed_sys(&a.host->level, level + 1);
  __syncwarp();
  if (lane == 0) b.reported = level + 1;
  if (lane < kTotals + kTotalCount) {
    spent->lines[lane].value = 0;
    settled->lines[lane].value = 0;
  }
}

__device__ __forceinline__ void report_level(const Params& a, Block& b, u32 warp = kWarps - 1) {
  if (blockIdx.x == 0 && warp_in_block() == warp) report_noted(a, b);
}

}  // namespace dbfs
