// What a block keeps in shared memory, and the per-level totals that it adds up there.
//
// Totals cost one atomic a block and level. As warp-wide atomics they took 4 us a level (4,224 on one address).
#pragma once
#include "common/memory.cuh"

namespace dbfs {

// Discoveries a block holds back, to reserve room in the queues once for all of them (Merrill 2012, section 5).
struct Stage {
  u32 ids[kStage];                          // internal ids
  u32 parents[kPredecessors ? kStage : 1];  // internal ids
};

// Bottom-up: rows of a warp's unit that the first probe left open, and the bits found since.
struct OpenRows {
  u8 offsets[kWarps][kUnitWords * kLanes];
  u32 found[kWarps][kUnitWords];
};

struct Frontier {
  u64 vertices, edges;  // on all ranks
  bool queued;          // the queues hold it (then `edges` is exact)
  bool mapped;          // the frontier bitmap of this turn holds it
  bool pending;         // the queues and the inbox hold it unlabelled, with repeats: a light level made it
};

// Where a run stands. One thread of each block moves it on, at every barrier, to the same state in all blocks and
// ranks.
struct Run {
  Step step;
  Mode mode;  // of this level, or of the one before while this one's is open
  u32 level;
  u32 queue;          // the buffer that holds the frontier
  u32 turn;           // the bitmap that holds it
  u32 small, chunks;  // lengths of this rank's queues
  Frontier frontier;
  bool queues;        // the merge of a dense level fills the next queue, too
  u64 unexplored, targets;
  u64 own;        // vertices of the frontier on this rank; not kept up in light levels
  u64 expanded;   // vertices of the frontier before
  u64 looked_at;  // edges that the last bottom-up level looked at, on all ranks
};

struct Block {
  union {
    Stage stage;
    OpenRows open;
  };
  Run run;
  // Light levels: vertices that this block discovered and will expand itself, and a neighbour of theirs for each thread
  // but the first warp's, fetched while the block waits.
  u32 kept;
  u32 keep_ids[kKeep];
  u32 keep_parents[kPredecessors ? kKeep : 1];
  u32 keep_edges[kThreads];
  u32 queued;  // vertices put into the queue since the last barrier, one GPU
  u32 staged;
  u32 staged_for[kMaxRanks], staged_counts[kMaxRanks];  // light levels: by owner, while staged and while published
  u32 tally[kTotals];                                   // publish: items of this block by counter; zero in between
  u64 base[kTotals];                                    // and where they go
  u64 totals[kTotalCount];
  u64 values[kMaxRanks * kFlagWords];  // what the ranks said at the last barrier
  u64 barriers[2];                     // this GPU's barrier words, as seen at their last barriers
  u32 round;                           // which of them is next
  u64 deadline;
  u64 level_began;      // in cycles
  u64 level_cycles[2];  // block 0, by level parity, with the mode: levels noted but not reported
  Mode level_modes[2];
  u64 level_frontier[2];  // the same: of this rank, or of all in led levels; not of light ones of several ranks
  u64 level_found[2];     // the same: vertices found for this rank or another, before their owners looked
  u32 ended;  // levels that conclude has ended; `noted` follows when no warp reads it
  u32 noted, reported;
  u32 epoch;
  u32 alive;
};

// Sum over a warp, and 32-bit shared atomics with a carry: a 64-bit one is a loop that 32 warps fight over. A lane adds
// less than 2^53. Always summed in two parts: a branch to a 64-bit sum made ptxas spill at each use (sm_90).
__device__ __forceinline__ void add_total(Block& b, Total total, u64 per_lane) {
  constexpr u32 kLowerBits = 26;
  const u32 lower = warp_sum((u32)per_lane & ((1u << kLowerBits) - 1));
  const u64 sum = ((u64)warp_sum((u32)(per_lane >> kLowerBits)) << kLowerBits) + lower;
  if (lane_id() == 0 && sum) {
    u32* half = (u32*)&b.totals[total];
    const u32 low = (u32)sum, old = atomicAdd(&half[0], low);
    const u32 high = (u32)(sum >> 32) + (old + low < old);
    if (high) atomicAdd(&half[1], high);
  }
}

// The same where a block's sum surely fits 32 bits: nothing waits for the atomic.
__device__ __forceinline__ void add_small_total(Block& b, Total total, u32 per_lane) {
  const u32 sum = warp_sum(per_lane);
  if (lane_id() == 0 && sum) atomicAdd((u32*)&b.totals[total], sum);
}

}  // namespace dbfs
