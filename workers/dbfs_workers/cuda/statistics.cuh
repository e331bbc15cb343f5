// What a level did, written into host memory while the kernel runs.
//
// One thread of block 0 notes the end of a level; at the next barrier, while the block waits, another warp reports it:
// nothing waits for the writes over PCIe.
#pragma once
#include "queue.cuh"

namespace dbfs {

// Called by the one thread that ends a level.
__device__ __forceinline__ void note_level(Block& b) {
  if (blockIdx.x != 0) return;
  const u64 now = clock64();
  b.level_cycles[b.run.level & 1] = now - b.level_began;
  b.level_modes[b.run.level & 1] = b.run.mode;
  b.level_began = now;
  b.ended = b.run.level + 1;
}

// Writes the next level noted, and clears its counters: their last reader is past, and the next to count there is two
// barriers away. Each field of the record has a lane, so that all cost one trip to L2.
__device__ __forceinline__ void report_level(const Params& a, Block& b) {
  if (blockIdx.x != 0 || warp_in_block() != 1) return;
  const u32 level = b.reported, lane = lane_id();
  const bool due = b.noted > level;
  __syncwarp();
  if (!due) return;
  Slot* slots = a.control->slots;
  Slot* made = &slots[(level + 1) % kLevelSlots];
  Slot* spent = &slots[level % kLevelSlots];
  Slot* settled = &slots[kLevelSlots + level % kSettleSlots];
  const u32 mode = b.level_modes[level & 1];
  u64 value = 0;
  if (lane < 3) {
    Line* line = &made->lines[kTotals + (lane == 0 ? kExpanded : lane == 1 ? kInspected : kDiscovered)];
    if (lane == 0 && mode == kBottomUpLevel) line = &spent->lines[kTotals + kDiscovered];
    value = load_relaxed(&line->value);
  }
  if (lane == 3) value = b.level_cycles[level & 1];
  if (lane == 4) value = mode;
  if (lane < 5 && level < a.stats_capacity) store_relaxed_sys((u64*)&a.host->records[level] + lane, value);
  if (lane == 5) store_relaxed_sys(&a.host->level, level + 1);
  __syncwarp();
  if (lane == 0) b.reported = level + 1;
  if (lane < kTotals + kTotalCount) {
    spent->lines[lane].value = 0;
    settled->lines[lane].value = 0;
  }
}

}  // namespace dbfs
