// Shortest paths by weight in one launch a rank, which has the whole graph, or of several ranks whose GPUs reach each
// other's memory (gang.cuh): all rounds, the parents and the labels.
//
// Delta-stepping (Meyer and Sanders, "Delta-stepping: a parallelizable shortest path algorithm", 2003) with a near and a
// far pile in the place of buckets (Davidson, Baxter, Garland and Owens, "Work-efficient parallel GPU methods for
// single-source shortest paths", 2014). A bucket ends with a round that leaves no near row; all distances up to its bound
// are final. The pieces of long rows are relaxed in the round after their row's.
//
// All blocks are under way at once (a cooperative launch), so that the host waits once. The ranks go through the same
// buckets and rounds. A bucket ends with a round in which no rank sends either.
#include "features/weights/kernels/piles.cuh"
#include "features/weights/kernels/tree.cuh"

using namespace dbfs;

// Clear the last traversal, and make the sources the first near pile.
template <class Op>
__device__ void start(const Weights& a) {
  typedef typename Op::Key Key;
  const u32 thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  const u64 ids = kGang ? a.ranks * a.rows : a.rows;
  for (u64 id = thread; id < ids; id += threads) {
    *value_of(a, (Key*)a.keys, (u32)id) = (Key)a.unreached;
    if (a.parents) *value_of(a, a.parents, (u32)id) = kNoVertex;
  }
  for (u32 row = thread; row < a.rows; row += threads) ((Key*)a.relaxed)[row] = (Key)a.unreached;
  // There are multiples of 32 rows.
  for (u32 at = thread; at < a.rows / 32; at += threads) a.near[0][at] = a.near[1][at] = a.far[at] = 0;
  for (u32 at = thread; kGang && at < ids / 32; at += threads) a.sent_bits[0][at] = a.sent_bits[1][at] = 0;
}

template <class Op>
__device__ void place_sources(const Weights& a) {
  const u32 thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  for (u32 at = thread; at < a.source_count; at += threads) {
    const u32 row = a.sources[at];
    ((typename Op::Key*)a.keys)[row] = 0;
    set_bit(a.near[0], row);
    if (at < a.room) a.queues[0][at] = row;
    if (a.parents) a.parents[row] = id_of(a, row);
  }
}

// Return whether a target's distance is not final. All threads of the block call it. Of several ranks the records tell.
template <class Op>
__device__ bool lacks_target(const Weights& a, const Thread<typename Op::Key>& t, const Shared& s) {
  typedef typename Op::Key Key;
  if (kGang) return s.state & kLacks;
  bool lacks = false;
  for (u32 at = threadIdx.x; at < a.target_count; at += blockDim.x) {
    lacks |= load_key((const Key*)a.keys + a.targets[at]) > t.bound;
  }
  return __syncthreads_or(lacks) != 0;
}

// Go over to steps of the first block alone, or back to those of all blocks. Return the code for a stop, or 0.
template <class Key>
__device__ u32 change_share(const Weights& a, Thread<Key>& t, Shared& s, bool alone) {
  if (alone) {
    // The others have to read the records of the last barrier before those of later ones take their place.
    const u32 stop = kGang ? pass_grid(a, t, s) : 0;
    if (stop) return stop;
    t.alone = blockIdx.x == 0;
    if (t.alone) return 0;
  } else if (threadIdx.x == 0) {
    *word(a, kPlace) = t.round;
    *word(a, kPlace + 1) = t.bucket;
    *word(a, kPlace + 2) = t.bound;
    *word(a, kPlace + 3) = s.epoch;
  }
  // The other blocks wait here for the first one.
  if (const u32 stop = pass_grid(a, t, s)) return stop;
  t.round = (u32)load_relaxed(word(a, kPlace));
  t.bucket = (u32)load_relaxed(word(a, kPlace + 1));
  t.bound = (Key)load_relaxed(word(a, kPlace + 2));
  t.alone = false;
  if (!kGang) return pass_block(a, t, s);
  if (threadIdx.x == 0) s.epoch = (u32)load_relaxed(word(a, kPlace + 3));
  return pass_gang(a, t, s, false);
}

// Make rounds until no distance can fall that is wanted. Return the code for a stop, or 0.
template <class Op>
__device__ u32 make_rounds(const Weights& a, Thread<typename Op::Key>& t, Shared& s) {
  typedef typename Op::Key Key;
  const bool first = blockIdx.x == 0 && threadIdx.x == 0;
  u32 stop = 0;
  t.bound = Op::bound(0, a.delta);
  while (true) {
    const bool ends = !(s.state & kBusy);
    const bool over = ends && (s.nearest == kNone || (a.all_targets && !lacks_target<Op>(a, t, s)));
    if (over && !t.alone) break;
    // Whether the first block makes the next step alone.
    const bool small = !over && !stop && !(s.state & (ends ? kManyFar : kManyNear));
    if (small != t.alone) {
      stop = change_share(a, t, s, small);
      if (stop) return stop;
      continue;
    }
    // Nothing is queued for the round after the next one yet, and all blocks have read the sizes of the one before last.
    // So it is with the far piles.
    if (first) clear_tails(a, t.round + 2);
    if (ends) {
      if (first) *word(a, kFarTails, t.bucket + 2) = 0;
      if (first) *word(a, kNearest, t.bucket + 2) = kNone;
      const Key bound = Op::bound((Key)s.nearest, a.delta);
      next_bucket<Op>(a, t, s, bound);
      t.bound = bound;
      ++t.bucket;
    } else {
      relax<Op>(a, t, s);
    }
    ++t.round;
    look(a, s);
    stop = pass(a, t, s);
    if (stop && !t.alone) return stop;
  }
  if (threadIdx.x == 0) atomicAdd(word(a, kRelaxed), s.edges);
  if (first) *word(a, kRounds) = t.round - t.bucket;
  return 0;
}

template <class Op>
__device__ __forceinline__ void find(const Weights& a, Shared& s) {
  typedef typename Op::Key Key;
  const bool first = blockIdx.x == 0 && threadIdx.x == 0;
  Thread<Key> t = {};
  if (threadIdx.x == 0) {
    s.started = s.looked = now_ns();
    s.least = kNone;
    s.edges = s.taken = s.barriers = s.stop = 0;
    s.epoch = a.epoch;
    for (u32 rank = 0; kGang && rank < a.ranks; ++rank) s.shifts[rank] = a.shifts[rank];
  }
  start<Op>(a);
  u32 stop = pass(a, t, s);
  if (!stop) {
    place_sources<Op>(a);
    stop = pass(a, t, s);
  }
  if (first) *word(a, kSetup) = now_ns() - s.started;
  if (!stop) stop = make_rounds<Op>(a, t, s);
  if (!stop) {
    // All blocks have found the piles empty.
    stop = pass(a, t, s);
    const Key last = (Key)a.unreached - 1, final = t.bound < last ? t.bound : last;
    if (!stop && a.parents) stop = make_tree<Op>(a, t, s, final);
    if (!stop) {
      finish<Op>(a, s, final);
      stop = pass_grid(a, t, s);
    }
  }
  if (first) *word(a, kEpoch) = s.epoch;
  if (first) *word(a, kWhole) = now_ns() - s.started;
  if (first) *word(a, kOutcome) = stop ? stop : kDone;
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocksPerSm) dbfs_weights_whole32(const Weights a) {
  __shared__ Shared s;
  find<Whole32>(a, s);
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocksPerSm) dbfs_weights_int64(const Weights a) {
  __shared__ Shared s;
  find<Whole64>(a, s);
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocksPerSm) dbfs_weights_float32(const Weights a) {
  __shared__ Shared s;
  find<Single>(a, s);
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocksPerSm) dbfs_weights_float64(const Weights a) {
  __shared__ Shared s;
  find<Double>(a, s);
}
