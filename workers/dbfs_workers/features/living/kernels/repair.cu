// The repair of one rank's labels after updates, in one launch: doubt, search, parents and counts.
//
// The steps are those of features/living/repair.py (Ramalingam and Reps 1996), in rounds that follow no order of distances. A row
// in doubt has a distance and no parent. In a round of doubt it takes a neighbour one nearer to the source as its parent,
// waits for such neighbours that are in doubt themselves, or loses its distance, and its children come into doubt. In a
// round of the search, rows that came nearer offer their distance to their neighbours. At last all rows are counted, and
// those that changed get parents.
//
// All blocks are under way at once (a cooperative launch). A round of few rows is made by the first block alone, with a
// queue in shared memory: its barrier takes a tenth of the time of the grid's. `lanes` neighbouring lanes share a row.
#include "features/living/kernels/doubt.cuh"
#include "features/living/kernels/finish.cuh"
#include "features/living/kernels/search.cuh"

using namespace dbfs;

template <bool kWhole, bool kSearching>
__device__ __forceinline__ void make_round(const Repair& a, Thread& t, Shared& s, u32 size) {
  if (kSearching) {
    make_offers<kWhole>(a, t, s, size);
  } else {
    settle<kWhole>(a, t, s, size);
  }
}

// The first block makes rounds alone, as long as they are of few rows. Afterwards the queue and its size are where the
// grid looks for them.
template <bool kSearching>
__device__ void make_rounds_alone(const Repair& a, Thread& t, Shared& s, u32 size) {
  const i64* offsets = kSearching ? a.offsets : a.in_offsets;
  for (u32 index = threadIdx.x; index < size; index += kThreads) {
    const u32 row = load_shared_by_gang(&a.queues[t.round & 1][index]);
    const Range edges = edges_of(offsets, row);
    Entries& entries = s.entries[t.round & 1];
    entries.rows[index] = row;
    entries.begins[index] = edges.begin;
    entries.degrees[index] = (u32)(edges.end - edges.begin);
  }
  if (threadIdx.x < 4) s.tails[threadIdx.x] = 0;
  if (threadIdx.x == 0) {
    s.losses = load_shared_by_gang(&a.control[kLost]);
  }
  bool over = false;
  __syncthreads();
  while (size && size <= a.few && !over) {
    // As in make_rounds.
    if (threadIdx.x == 0) s.tails[(t.round + 2) & 3] = 0;
    make_round<false, kSearching>(a, t, s, size);
    if (threadIdx.x == 0 && (t.round & kRoundsALook) == 0) look_at_clock(a, t);
    over = __syncthreads_or(t.stop) != 0;
    ++t.round;
    size = s.tails[t.round & 3];
  }
  t.stop |= over;
  const u32 shared = size < kFew ? size : kFew;
  for (u32 index = threadIdx.x; index < shared; index += kThreads) {
    put(a, t, a.queues[t.round & 1], index, s.entries[t.round & 1].rows[index]);
  }
  if (threadIdx.x == 0) {
    for (u32 slot = 0; slot < 4; ++slot) a.control[kTails + slot] = slot == (t.round & 3) ? size : 0;
    a.control[kNumber] = t.round;
    a.control[kLost] = s.losses;
  }
}

// Make rounds until a queue is empty. True if the repair must end.
template <bool kSearching>
__device__ bool make_rounds(const Repair& a, Thread& t, Shared& s) {
  while (const u32 size = load_shared_by_gang(&a.control[kTails + (t.round & 3)])) {
    if (size <= a.few) {
      if (pass_grid(a, t, s)) return true;
      if (blockIdx.x == 0) make_rounds_alone<kSearching>(a, t, s, size);
      if (pass_grid(a, t, s)) return true;
      t.round = load_shared_by_gang(&a.control[kNumber]);
      continue;
    }
    // Nothing is queued for the round after the next one yet, and all blocks have read the size of the one before last.
    if (blockIdx.x == 0 && threadIdx.x == 0) a.control[kTails + ((t.round + 2) & 3)] = 0;
    make_round<true, kSearching>(a, t, s, size);
    if (threadIdx.x == 0) look_at_clock(a, t);
    if (pass_grid(a, t, s)) return true;
    ++t.round;
  }
  return false;
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_repair(const Repair a) {
  __shared__ Shared s;
  Thread t = {now_ns(), 0, 0, false};
  doubt_deleted(a, t, s);
  bool over = pass_grid(a, t, s) || make_rounds<false>(a, t, s);
  if (!over) {
    const u32 lost = load_shared_by_gang(&a.control[kLost]);
    // All blocks have found the queue empty before the search fills it.
    over = pass_grid(a, t, s);
    if (!over) {
      search_border(a, t, s, lost);
      if (threadIdx.x == 0) look_at_clock(a, t);
      over = pass_grid(a, t, s) || make_rounds<true>(a, t, s);
    }
  }
  if (!over) {
    finish(a, t);
    over = pass_grid(a, t, s);
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    a.control[kOutcome] = over ? kTooMuch : kDone;
    a.control[kRounds] = t.round;
  }
}
