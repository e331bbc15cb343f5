// The state of a block in shared memory, and the totals of a level that the block sums there.
//
// A total costs one atomic a block and level. As warp-wide atomics the totals took 4 us a level (4,224 on one address).
#pragma once
#include "search/cuda/kernels/common/memory.cuh"

namespace dbfs {

// Discoveries that a block holds back, to reserve room in the queues once for all of them (Merrill 2012, section 5).
struct Stage {
  u32 ids[kStage];                          // internal ids
  u32 parents[kPredecessors ? kStage : 1];  // internal ids
};

// Bottom-up: rows of a warp's unit that the first probe left open, and the bits of rows found afterwards.
struct OpenRows {
  u8 offsets[kWarps][kUnitWords * kLanes];
  u32 found[kWarps][kUnitWords];
};

struct Frontier {
  u64 vertices, edges;  // on all ranks
  bool queued;          // it is in the queues, and `edges` is exact
  bool mapped;          // it is in the bitmap of this frontier
  bool pending;         // it is in the queues and the inbox, unlabelled and with repeats: a light level made it
};

// The state of the run. One thread of each block advances it at every barrier, to the same state in all blocks and
// ranks (a leader level is known to the leader alone).
struct Run {
  Step step;
  Mode mode;  // of this level; of the previous level until this one's is chosen
  u32 level;
  u32 queue;          // index of the queue that holds the frontier
  u32 bitmap;         // index of the bitmap that holds the frontier
  u32 small, chunks;  // lengths of this rank's queues
  Frontier frontier;
  bool queues;        // the merge of a dense level also fills the next queue
  u64 unexplored, targets;
  u64 own;        // vertices of the frontier on this rank; out of date in light levels
  u64 expanded;   // vertices of the previous frontier
  u64 looked_at;  // edges that the last bottom-up level looked at, on all ranks
};

struct Block {
  union {
    Stage stage;
    OpenRows open;
  };
  Run run;
  // Light levels: vertices that this block discovered and will expand itself, and for each thread outside the first
  // warp one of their neighbours, fetched while the block waits.
  u32 kept;
  u32 keep_ids[kHalves * kKeep];
  u32 keep_parents[kPredecessors ? kHalves * kKeep : 1];
  alignas(16) u32 keep_edges[kHalves * kThreads];
  u32 queued;  // vertices that this block queued since the last barrier; single and leader roles
  u32 staged;
  u32 staged_for[kMaxRanks], staged_counts[kMaxRanks];  // light levels, by owner: while staging, and while publishing
  u32 tally[kTotals];                                   // publish: items of this block by counter; zero in between
  u64 base[kTotals];                                    // publish: first place reserved, by counter
  u64 totals[kTotalCount];
  u64 values[kMaxRanks * kFlagWords];  // the ranks' records at the last barrier
  u64 barriers[2];                     // this GPU's barrier words as last seen
  u32 round;                           // index of the next of them
  u64 sums;                            // light levels over a table: what the last one said,
  u32 goes_on;                         // and whether another such level follows
  u64 deadline;
  u64 level_began;  // in cycles
  // Block 0, by level parity: levels that are noted and not yet reported.
  u64 level_cycles[2];
  Mode level_modes[2];
  u64 level_frontier[2];  // of this rank; of all ranks in leader levels; unused in light levels of several ranks
  u64 level_found[2];     // vertices found for any rank, before their owners looked
  u32 ended;              // levels that `conclude` has ended; `noted` follows at a moment when no warp reads it
  u32 noted, reported;
  u32 epoch;
  u32 alive;
};

// Where a block's vertices of a level begin among those that it kept.
__device__ __forceinline__ u32 kept_place(u32 level) { return level % kHalves * kKeep; }

// Add a warp's numbers to a total of the block. All lanes call it; a lane adds less than 2^53. Two 32-bit shared
// atomics with a carry, because a 64-bit one is a loop that 32 warps fight over. The warp sums in two parts at all
// times: a branch to a 64-bit sum made ptxas spill at each use (sm_90).
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

// The same for a block's sum that fits 32 bits: no lane waits for the atomic's answer.
__device__ __forceinline__ void add_small_total(Block& b, Total total, u32 per_lane) {
  const u32 sum = warp_sum(per_lane);
  if (lane_id() == 0 && sum) atomicAdd((u32*)&b.totals[total], sum);
}

}  // namespace dbfs
