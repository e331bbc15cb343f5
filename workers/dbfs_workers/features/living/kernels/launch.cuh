// What a launch of the repair shares: its arguments, its counters, the barrier of the grid, and the clock.
#pragma once
#include "search/cuda/kernels/common/memory.cuh"

namespace dbfs {

// See repair.py.
struct Repair {
  const i64* offsets;
  const u32* columns;
  const i64* in_offsets;
  const u32* in_columns;
  i32* distances;
  u32* parents;
  const i32* before;    // the distances before the repair
  const u32* deleted;   // rows, then the edges' other ends
  const u32* inserted;  // the same
  u32* changed;         // bitmap of the rows whose distance differs in the end
  u32* queues[2];       // of even and of odd rounds
  u32* lost;            // rows that lost their distances
  u32* control;
  i64 rows;
  u64 limit_ns;
  u32 deletions;
  u32 insertions;
  u32 capacity;  // of the queues and of `lost`
  u32 lanes;
  u32 few;  // most rows of a round that the first block makes alone
  u32 blank;
};
static_assert(sizeof(Repair) == 16 * 8 + 6 * 4, "the fields of repair.py");

// Words of `control`, which is zero before the launch.
enum {
  kBarriers = 0,  // two words of 64 bits
  kTails = 4,     // entries of the queues of four rounds
  kLost = 8,      // entries of `lost`
  kNumber = 9,    // of the round in progress, behind rounds of one block
  kOutcome = 10,
  kDepth = 11,
  kRounds = 12,
  kReached = 14,  // 64 bits
  kMissing = 16,  // 64 bits: edges of the rows that are not reached
};

enum { kDone = 1, kTooMuch = 2 };

constexpr u32 kFew = 1024;        // entries of a queue in shared memory
constexpr u32 kLooks = 255;       // a warp looks at the clock after so many steps along a row
constexpr u32 kRoundsALook = 15;  // the first block looks at the clock after so many rounds
constexpr u32 kSerial = 16;       // edges of a row that a thread tries alone for a parent

// Rows that one block queues for its next round, with their first edge and their number of edges.
struct Entries {
  u32 rows[kFew];
  u32 degrees[kFew];
  i64 begins[kFew];
};

struct Shared {
  Entries entries[2];  // of even and of odd rounds
  u32 tails[4];        // their sizes, of four rounds in turn
  u32 losses;          // entries of `lost`, while one block makes rounds
  u64 answer;
};

// What a thread has found, and where it is.
struct Thread {
  u64 started;
  u32 barriers;  // barriers of the grid so far
  u32 round;
  bool stop;  // the repair takes too long or too much room
};

__device__ __forceinline__ i32 distance_of(const Repair& a, u32 row) {
  return (i32)load_shared_by_gang((const u32*)&a.distances[row]);
}

__device__ __forceinline__ bool leads(const Repair& a) { return (lane_id() & (a.lanes - 1)) == 0; }

// A barrier of the grid. True if any thread has found that the repair must end. Two words take turns: a block that has
// passed adds to the other one, so that all blocks read the same answer.
__device__ __forceinline__ bool pass_grid(const Repair& a, Thread& t, Shared& s) {
  const int stop = __syncthreads_or(t.stop);
  if (threadIdx.x == 0) {
    u64* word = (u64*)(a.control + kBarriers) + (t.barriers & 1);
    const u32 goal = (t.barriers / 2 + 1) * gridDim.x;
    __threadfence();
    atomicAdd(word, 1 + ((u64)(stop != 0) << 32));
    u64 now;
    while ((u32)(now = load_relaxed(word)) != goal) {
    }
    __threadfence();
    s.answer = now >> 32;
  }
  ++t.barriers;
  __syncthreads();
  return s.answer != 0;
}

__device__ __forceinline__ void look_at_clock(const Repair& a, Thread& t) {
  if (now_ns() - t.started > a.limit_ns) t.stop = true;
}

// True for all lanes of a warp if the repair must end, which one of them finds out after many steps along its row.
__device__ __forceinline__ bool too_late(const Repair& a, Thread& t, u32& steps) {
  if ((++steps & kLooks) != 0) return false;
  look_at_clock(a, t);
  return __any_sync(kAll, t.stop) != 0;
}

}  // namespace dbfs
