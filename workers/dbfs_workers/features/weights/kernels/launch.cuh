// What a launch of shortest paths by weight shares: its arguments, its counters, the types of distances, and the barrier
// of the grid.
#pragma once
#include "search/cuda/kernels/common/memory.cuh"

namespace dbfs {

// See on_gpu.py.
struct Weights {
  const i64* offsets;
  const u32* columns;
  const void* weights;  // by edge, of the type's `Weight`
  void* keys;           // by row, of the type's `Key`
  void* relaxed;        // by row, the key with which the row's edges were relaxed last
  i64* labels;          // by row; null where the keys become the labels
  u32* parents;         // by row; null for none
  u32* queues[2];       // near piles of even and of odd rounds as lists
  u32* near[2];         // as bitmaps
  u32* far;             // the far pile as a bitmap
  u32* lists[2];        // as a list, of even and of odd buckets
  u64* pieces[2];       // pieces of long rows, of even and of odd rounds
  const u32* sources;
  const u32* targets;
  u64* control;
  const u64* abort;  // in the host's memory
  u64 unreached;     // the key from which on distances are not labelled
  u64 delta;         // the width of a bucket: the bits of a weight, with zeros above
  u64 blank;         // the label of an unreached row
  u64 limit_ns;
  i64 rows;
  u32 source_count;
  u32 target_count;
  u32 room;  // rows that a list has room for
  u32 few;   // most rows of a round that the first block makes alone
  // Of several ranks: see gang.cuh.
  i64 shifts[kMaxRanks];  // bytes from a place in this rank's window to the same one in a rank's
  u64* flags;
  u32* sent[2];       // ids that are sent to peers in even and in odd rounds, as lists
  u32* sent_bits[2];  // as bitmaps of all ids
  u32 rank, ranks;
  u32 epoch;  // barriers of all ranks that former launches passed
  u32 all_targets;
};
static_assert(sizeof(Weights) == 38 * 8 + 8 * 4, "the fields of on_gpu.py");

// Words of `control`, each on a line of its own. Those of rounds and of buckets take turns by four.
enum {
  kBarriers = 0,   // two
  kNearTails = 2,  // rows of the lists of the near piles; `room` or more for a pile that is only a bitmap
  kPieceTails = 6,
  kFarTails = 10,  // the same of the far pile
  kNearest = 14,   // the least keys put into the far pile
  kReached = 18,
  kDegrees = 19,
  kPast = 20,      // rows whose distance int64 does not hold
  kFarthest = 21,  // the largest key of a label
  kRelaxed = 22,   // edges
  kTaken = 23,     // rows that rounds have taken
  kRounds = 25,
  kOutcome = 26,
  kSetup = 27,  // nanoseconds until the first round
  kWhole = 28,  // nanoseconds
  kPlace = 30,  // round, bucket, bound and epoch behind rounds of one block
  kOrphans = 34,
  kSentTails = 38,
  kArrivals = 42,  // blocks at barriers of all ranks
  kGaveUp = 43,    // the code for a stop
  kEpoch = 44,
  kWords = 45,
};
constexpr u32 kLine = 16;

enum { kDone = 1, kAborted = 2, kLate = 3 };

// What is true of a rank before a round: it has work, and too much of it for one block; the same of its far pile; a
// target's distance is not final.
enum { kBusy = 1, kManyNear = 2, kManyFar = 4, kLacks = 8 };

constexpr u64 kNone = 0x7fffffffffffffffull;
constexpr u64 kPastSum = kNone - 1;      // the key of an integer distance that int64 does not hold
constexpr u32 kPiece = 256;              // edges of a piece; rows with more are cut
constexpr u32 kFewFar = 8192;            // most rows of a far pile that the first block looks through alone
constexpr u32 kTiles = 4;                // rows of the far pile in flight per lane
constexpr u64 kLookNs = 200000;          // the host's flag is looked at this often
constexpr u64 kGraceNs = 5000000000ull;  // a barrier is left so long after the limit

// Types of distances, whose order is that of their keys; kUnroll edges are in flight per lane, as registers allow.
struct Whole32 {
  static constexpr u32 kUnroll = kGang ? 2 : 4;
  typedef u32 Key;
  typedef u32 Weight;
  static __device__ __forceinline__ Key add(Key key, Weight weight) { return key + weight; }
  static __device__ __forceinline__ Key bound(Key key, u64 delta) {
    const u64 sum = key + delta;
    return (Key)(sum < 0xfffffffeull ? sum : 0xfffffffeull);
  }
};

struct Whole64 {
  static constexpr u32 kUnroll = 2;
  typedef u64 Key;
  typedef u64 Weight;
  static __device__ __forceinline__ Key add(Key key, Weight weight) {
    const u64 sum = key + weight;
    return sum < kPastSum ? sum : kPastSum;
  }
  static __device__ __forceinline__ Key bound(Key key, u64 delta) { return add(key, delta); }
};

struct Single {
  static constexpr u32 kUnroll = kGang ? 2 : 4;
  typedef u32 Key;
  typedef float Weight;
  static __device__ __forceinline__ Key add(Key key, Weight weight) {
    return __float_as_uint(__uint_as_float(key) + weight);
  }
  static __device__ __forceinline__ Key bound(Key key, u64 delta) { return add(key, __uint_as_float((u32)delta)); }
};

struct Double {
  static constexpr u32 kUnroll = 2;
  typedef u64 Key;
  typedef double Weight;
  static __device__ __forceinline__ Key add(Key key, Weight weight) {
    return (u64)__double_as_longlong(__longlong_as_double((i64)key) + weight);
  }
  static __device__ __forceinline__ Key bound(Key key, u64 delta) {
    return add(key, __longlong_as_double((i64)delta));
  }
};

// What a block shares. The first thread reads the words of `control` behind each barrier: all warps of the grid would
// wait for one line.
struct Shared {
  u64 answer;
  u64 started, looked;  // times of the first thread
  u64 nearest;          // the least key of the far pile
  u64 least;            // the least key that the block has put there since
  u32 near, pieces;     // entries of the round
  u32 far;              // rows of the far pile's list
  u32 state;            // kBusy and others, of all ranks
  u32 epoch;            // barriers of all ranks so far
  i64 shifts[kMaxRanks];
  u32 sent[kMaxRanks];  // entries of the ranks' lists; `room` or more for one that is only a bitmap
  u32 counts[2];        // of the tile that the block puts into lists: see next_bucket
  u64 firsts[2];
  u64 edges, taken;     // counts of the block
  u32 barriers;         // of the grid so far
  u32 stop;             // kAborted or kLate, in the first block
};

// What a thread has found, and where it is.
template <class Key>
struct Thread {
  Key bound;    // the largest key of the bucket
  Key nearest;  // the least key that the thread has put into the far pile since the last look
  u32 round, bucket;
  bool alone;  // whether the first block makes the round alone
  // Whether the lists of the far pile, the next near pile and the sent ids have room; the same for all lanes of a warp.
  bool far_listed, near_listed, sent_listed;

  // The warp and the block among those that make the round, and their numbers.
  __device__ __forceinline__ u32 warp() const { return alone ? warp_in_block() : warp_in_grid(); }
  __device__ __forceinline__ u32 warps() const { return alone ? kWarps : warps_in_grid(); }
  __device__ __forceinline__ u32 block() const { return alone ? 0 : blockIdx.x; }
  __device__ __forceinline__ u32 blocks() const { return alone ? 1 : gridDim.x; }
};

__device__ __forceinline__ u64* word(const Weights& a, u32 slot) { return a.control + slot * kLine; }
// A word of those that take turns.
__device__ __forceinline__ u64* word(const Weights& a, u32 slot, u32 turn) { return word(a, slot + (turn & 3)); }

__device__ __forceinline__ u32 load_key(const u32* place) { return load_shared_by_gang(place); }
__device__ __forceinline__ u64 load_key(const u64* place) {
  return kGang ? load_relaxed_sys(place) : load_relaxed(place);
}

// Tell the others the least key that the block has put into the far pile, by its first thread.
template <class Key>
__device__ __forceinline__ void tell_least(const Weights& a, const Thread<Key>& t, Shared& s) {
  if (s.least != kNone) atomicMin(word(a, kNearest, t.bucket), s.least);
  s.least = kNone;
}

// What is true of a rank with a near pile of so many entries and pieces, and so many far ones.
__device__ __forceinline__ u32 state_of(const Weights& a, u64 near, u64 pieces, u64 far, u64 orphans) {
  return (near || pieces || orphans ? kBusy : 0) | (pieces || near > a.few ? kManyNear : 0) |
         (!a.few || far > kFewFar || far >= a.room ? kManyFar : 0);
}

// Read the sizes of the round and of the bucket, by the first thread of a block.
template <class Key>
__device__ __forceinline__ void read_sizes(const Weights& a, const Thread<Key>& t, Shared& s) {
  const u64 near = load_relaxed(word(a, kNearTails, t.round)), pieces = load_relaxed(word(a, kPieceTails, t.round));
  const u64 far = load_relaxed(word(a, kFarTails, t.bucket));
  s.nearest = load_relaxed(word(a, kNearest, t.bucket));
  s.near = (u32)near;
  s.pieces = (u32)pieces;
  s.far = (u32)far;
  s.state = state_of(a, near, pieces, far, load_relaxed(word(a, kOrphans, t.round)));
  s.counts[0] = s.counts[1] = 0;
}

// A barrier of the grid, before the round and the bucket of `t`; the code for a stop if the first block has one. Two words
// take turns: a block that has passed adds to the other one, so that all blocks read the same answer. A block leaves alone
// only long after the limit. The sizes of several ranks are read at their own barrier.
template <class Key>
__device__ __forceinline__ u32 pass_grid(const Weights& a, const Thread<Key>& t, Shared& s) {
  __syncthreads();
  if (threadIdx.x == 0) {
    tell_least(a, t, s);
    u64* const here = word(a, kBarriers + (s.barriers & 1));
    const u32 goal = (s.barriers / 2 + 1) * gridDim.x;
    __threadfence();
    atomicAdd(here, 1 + ((u64)(s.stop != 0) << (s.stop == kAborted ? 48 : 32)));
    u64 now;
    u32 spins = 0;
    bool lost = false;
    while ((u32)(now = load_relaxed(here)) != goal && !lost) {
      if ((++spins & 1023) == 0) {
        lost = now_ns() - s.started > a.limit_ns + kGraceNs || (kGang && blockIdx.x && load_relaxed(word(a, kGaveUp)));
      }
    }
    __threadfence();
    s.answer = lost || (now >> 32 & 0xffff) ? kLate : now >> 48 ? kAborted : 0;
    if (!kGang) read_sizes(a, t, s);
    ++s.barriers;
  }
  __syncthreads();
  return (u32)s.answer;
}

// The barrier of the one block that makes rounds alone; the code for a stop, of which the others do not know yet.
template <class Key>
__device__ __forceinline__ u32 pass_block(const Weights& a, const Thread<Key>& t, Shared& s) {
  __syncthreads();
  if (threadIdx.x == 0) {
    tell_least(a, t, s);
    read_sizes(a, t, s);
    s.answer = s.stop;
  }
  __syncthreads();
  return (u32)s.answer;
}

// The first thread looks at the clock, and now and then at the host's flag, which takes 1 us.
__device__ __forceinline__ void look(const Weights& a, Shared& s) {
  if (blockIdx.x || threadIdx.x) return;
  const u64 now = now_ns();
  if (now - s.started > a.limit_ns) s.stop = kLate;
  if (now - s.looked < kLookNs) return;
  s.looked = now;
  if (load_relaxed_sys(a.abort)) s.stop = kAborted;
}

}  // namespace dbfs
