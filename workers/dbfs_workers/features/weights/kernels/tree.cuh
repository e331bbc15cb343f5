// The parents of final distances, and the labels.
//
// Over an edge that gives its end the distance, the nearer row is a parent; of several the smallest one is. Where a
// weight is 0, or vanishes in a sum, both ends are at one distance: a row that has only such edges gets a parent that got
// one before. So the parents form a tree.
//
// Of several ranks each chooses for all ids, among its own rows, by a copy of all keys. The owner takes the smallest choice.
// A parent at the same distance is sent to the owner, who takes the first one.
#pragma once
#include "features/weights/kernels/walk.cuh"

namespace dbfs {

// Looks at edges that give their end the distance. Lanes without a row have no edges.
template <class Op>
struct Adopt {
  typedef typename Op::Key Key;
  // Of several ranks an edge takes more registers.
  static constexpr u32 kUnroll = kGang ? Op::kUnroll / 2 : Op::kUnroll;
  const Weights& a;
  Thread<Key>& t;
  Key final;
  bool level;  // edges between rows at one distance; else those from a nearer row
  u32 row;
  Key distance;

  __device__ __forceinline__ void operator()(const u32 (&from)[kUnroll], const i64 (&place)[kUnroll]) {
#pragma unroll
    for (u32 i = 0; i < kUnroll; ++i) {
      const Key distance_there = __shfl_sync(kAll, distance, from[i]);
      const u32 parent = id_of(a, __shfl_sync(kAll, row, from[i]));
      bool adopted = false;
      u32 child = 0;
      if (place[i] >= 0) {
        child = __ldg(&a.columns[place[i]]);
        const Key key = load_key(value_of(a, (Key*)a.keys, child));
        const Key sum = Op::add(distance_there, __ldg((const typename Op::Weight*)a.weights + place[i]));
        if (key == sum && key <= final && (key == distance_there) == level) {
          if (level) {
            adopted = atomicCAS(value_of(a, a.parents, child), kNoVertex, parent) == kNoVertex;
          } else {
            atomicMin(value_of(a, a.parents, child), parent);
          }
        }
      }
      const bool own = is_own(a, child);
      if (kGang) {
        if (adopted && !own) set_bit(a.sent_bits[(t.round + 1) & 1], child);
        const u32 ids[1] = {child}, sent[1] = {__ballot_sync(kAll, adopted && !own)};
        put_sent(a, t, ids, sent);
      }
      const u32 rows[1] = {row_of(a, child)}, near[1] = {__ballot_sync(kAll, adopted && own)};
      if (adopted && own) set_bit(a.near[(t.round + 1) & 1], rows[0]);
      put_near(a, t, rows, near);
    }
  }
};

// Visit the edges of some rows: of all that are reached and, for edges on a level, have a parent; or of the near pile.
template <class Op>
__device__ void adopt(const Weights& a, Thread<typename Op::Key>& t, Shared& s, typename Op::Key final, bool level,
                      bool queued) {
  typedef typename Op::Key Key;
  const auto take = [&](u32 row, bool has, u32 from) {
    Adopt<Op> visit = {a, t, final, level, row, 0};
    if (kGang && has && from != a.rank) {
      const u32 sent = load_shared_by_gang(of_peer(s, a.parents + row, from));
      has = atomicCAS(&a.parents[row], kNoVertex, sent) == kNoVertex;
    }
    Range edges = {0, 0};
    if (has) {
      visit.distance = load_key((const Key*)a.keys + row);
      has = visit.distance <= final && (!level || load_shared_by_gang(&a.parents[row]) != kNoVertex);
      if (has) edges = edges_of(a, row);
    }
    cut_long_rows(a, t, row, edges);
    walk(edges, visit);
  };
  t.near_listed = t.sent_listed = true;
  if (queued) {
    take_near(a, t, s, take);
    return;
  }
  // There are multiples of 32 rows.
  for (u32 first = t.warp() * kLanes; first < a.rows; first += t.warps() * kLanes) take(first + lane_id(), true, a.rank);
}

// Make a step, and that of the pieces of the long rows of the step before: a round. Return the code for a stop, or 0.
template <class Op>
__device__ u32 adopt_all(const Weights& a, Thread<typename Op::Key>& t, Shared& s, typename Op::Key final, bool level,
                         bool queued) {
  typedef typename Op::Key Key;
  if (blockIdx.x == 0 && threadIdx.x == 0) clear_tails(a, t.round + 2);
  adopt<Op>(a, t, s, final, level, queued);
  walk_pieces(a, t, s, [&](u32 row) { return Adopt<Op>{a, t, final, level, row, load_key((const Key*)a.keys + row)}; });
  ++t.round;
  look(a, s);
  return pass(a, t, s);
}

// Copy the distances of all peers' rows.
template <class Key>
__device__ __forceinline__ void copy_keys(const Weights& a, const Shared& s) {
  const u64 ids = a.ranks * a.rows;
  for (u64 id = blockIdx.x * blockDim.x + threadIdx.x; id < ids; id += gridDim.x * blockDim.x) {
    Key* const here = value_of(a, (Key*)a.keys, (u32)id);
    if (!is_own(a, (u32)id)) *here = load_key(of_peer(s, here, (u32)id / (u32)a.rows));
  }
}

// Choose parents of all rows at distances up to `final`. Return the code for a stop, or 0.
template <class Op>
__device__ u32 make_tree(const Weights& a, Thread<typename Op::Key>& t, Shared& s, typename Op::Key final) {
  typedef typename Op::Key Key;
  u32 stop = 0;
  if (kGang) {
    copy_keys<Key>(a, s);
    stop = pass(a, t, s);
  }
  if (!stop) stop = adopt_all<Op>(a, t, s, final, false, false);
  // The pieces of long rows; no row is queued.
  if (!stop) stop = adopt_all<Op>(a, t, s, final, false, true);
  if (stop) return stop;
  bool orphan = false;
  for (u32 row = blockIdx.x * blockDim.x + threadIdx.x; row < a.rows; row += gridDim.x * blockDim.x) {
    u32 parent = load_shared_by_gang(&a.parents[row]);
    for (u32 from = 0; kGang && from < a.ranks; ++from) {
      const u32 other = load_shared_by_gang(of_peer(s, a.parents + row, from));
      parent = other < parent ? other : parent;
    }
    if (kGang) a.parents[row] = parent;
    orphan |= load_key((const Key*)a.keys + row) <= final && parent == kNoVertex;
  }
  const bool here = __syncthreads_or(orphan) != 0;
  if (here && threadIdx.x == 0) atomicAdd(word(a, kOrphans, t.round), (u64)1);
  stop = pass(a, t, s);
  if (stop || !(s.state & kBusy)) return stop;
  stop = adopt_all<Op>(a, t, s, final, true, false);
  while (!stop && (s.state & kBusy)) {
    stop = adopt_all<Op>(a, t, s, final, true, true);
  }
  return stop;
}

// Make the labels, and count.
template <class Op>
__device__ void finish(const Weights& a, const Shared& s, typename Op::Key final) {
  typedef typename Op::Key Key;
  u64 reached = 0, degrees = 0, past = 0, farthest = 0;
  for (u32 row = blockIdx.x * blockDim.x + threadIdx.x; row < a.rows; row += gridDim.x * blockDim.x) {
    Key* const place = (Key*)a.keys + row;
    const Key key = load_key(place);
    const bool has = key <= final;
    if (has) {
      const Range edges_here = edges_of(a, row);
      ++reached;
      degrees += edges_here.end - edges_here.begin;
      past += (u64)key == kPastSum;
      farthest = key > farthest ? key : farthest;
    }
    if (a.labels) {
      a.labels[row] = has ? (i64)key : (i64)a.blank;
    } else if (!has) {
      *place = (Key)a.blank;
    }
  }
  for (u32 step = kLanes / 2; step; step >>= 1) {
    reached += __shfl_xor_sync(kAll, reached, step);
    degrees += __shfl_xor_sync(kAll, degrees, step);
    past += __shfl_xor_sync(kAll, past, step);
    const u64 other = __shfl_xor_sync(kAll, farthest, step);
    farthest = other > farthest ? other : farthest;
  }
  if (lane_id()) return;
  atomicAdd(word(a, kReached), reached);
  atomicAdd(word(a, kDegrees), degrees);
  atomicAdd(word(a, kPast), past);
  atomicMax(word(a, kFarthest), farthest);
  if (threadIdx.x == 0) atomicAdd(word(a, kTaken), s.taken);
}

}  // namespace dbfs
