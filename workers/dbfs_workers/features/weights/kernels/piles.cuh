// The rounds of a bucket, and the next bucket: relax the edges of the near pile, and make a new one of the far pile.
//
// A row that is near takes its offsets, its key, and for each edge a column, a weight, and a look at a key. A row is once
// in a pile at most, by a bit. The far pile is a list too while that has room: of a few rows a list is read faster, of
// many the bitmap and the keys, which lie in a row.
#pragma once
#include "features/weights/kernels/walk.cuh"

namespace dbfs {

// Lower a distance; the row comes into its pile. All lanes of a warp call it.
template <class Op>
__device__ __forceinline__ void offer(const Weights& a, Thread<typename Op::Key>& t, u32 row, typename Op::Key key,
                                      bool has) {
  typedef typename Op::Key Key;
  if (!__any_sync(kAll, has)) return;
  const bool nearer = has && key < atomicMin((Key*)a.keys + row, key);
  t.fell += nearer;
  const u32 next = (t.round + 1) & 1;
  const bool near = nearer && key <= t.bound && claim(a.near[next], row);
  bool far = nearer && key > t.bound;
  if (far && key < t.nearest) t.nearest = key;
  far = far && !has_bit(load_shared_by_gang(&a.far[row >> 5]), row) && claim(a.far, row);
  const u32 nears = __ballot_sync(kAll, near), fars = __ballot_sync(kAll, far);
  if (nears) {
    const u64 first = reserve(a, kNearTails, t.round + 1, __popc(nears));
    if (near) a.queues[next][first + __popc(nears & lanes_below())] = row;
  }
  if (fars && t.listed) {
    const u64 first = reserve(a, kFarTails, t.bucket, __popc(fars));
    const u64 place = first + __popc(fars & lanes_below());
    if (far && place < a.room) a.lists[t.bucket & 1][place] = row;
    t.listed = first < a.room;
  }
}

// Relaxes edges of rows, each lane having the key of its row.
template <class Op>
struct Relax {
  typedef typename Op::Key Key;
  static constexpr u32 kUnroll = Op::kUnroll;
  const Weights& a;
  Thread<Key>& t;
  Key distance;

  __device__ __forceinline__ void operator()(const u32 (&from)[kUnroll], const i64 (&place)[kUnroll]) {
    u32 row[kUnroll];
    Key key[kUnroll], before[kUnroll];
#pragma unroll
    for (u32 i = 0; i < kUnroll; ++i) {
      const Key distance_there = __shfl_sync(kAll, distance, from[i]);
      row[i] = 0;
      key[i] = before[i] = 0;
      if (place[i] < 0) continue;
      row[i] = __ldg(&a.columns[place[i]]);
      key[i] = Op::add(distance_there, __ldg((const typename Op::Weight*)a.weights + place[i]));
      ++t.edges;
    }
#pragma unroll
    for (u32 i = 0; i < kUnroll; ++i) {
      if (place[i] >= 0) before[i] = load_key((const Key*)a.keys + row[i]);
    }
#pragma unroll
    for (u32 i = 0; i < kUnroll; ++i) offer<Op>(a, t, row[i], key[i], key[i] < before[i]);
  }
};

// Tell all blocks the least key that went into the far pile.
template <class Key>
__device__ __forceinline__ void tell_nearest(const Weights& a, Thread<Key>& t, Key nearest, u32 bucket) {
  for (u32 step = kLanes / 2; step; step >>= 1) {
    const Key other = __shfl_xor_sync(kAll, nearest, step);
    nearest = other < nearest ? other : nearest;
  }
  if (lane_id() == 0 && nearest != (Key)~(Key)0) atomicMin(word(a, kNearest + (bucket & 3)), (u64)nearest);
}

// Relax the edges of the near pile: a round.
template <class Op>
__device__ void relax(const Weights& a, Thread<typename Op::Key>& t, u32 near) {
  typedef typename Op::Key Key;
  const Key* keys = (const Key*)a.keys;
  t.nearest = ~(Key)0;
  t.listed = __shfl_sync(kAll, size_of(a, kFarTails, t.bucket), 0) <= a.room;
  walk_pieces(a, t, [&](u32 row) { return Relax<Op>{a, t, load_key(&keys[row])}; });
  // A short pile is spread over all warps.
  const u32 share = (near + warps_in_grid() - 1) / warps_in_grid(), rows = share < kLanes ? share : kLanes;
  for (u32 first = warp_in_grid() * rows; first < near; first += warps_in_grid() * rows) {
    const u32 at = first + lane_id();
    Range edges = {0, 0};
    u32 row = 0;
    Relax<Op> visit = {a, t, 0};
    if (lane_id() < rows && at < near) {
      row = load_shared_by_gang(&a.queues[t.round & 1][at]);
      atomicAnd(&a.near[t.round & 1][row >> 5], ~bit_of(row));
      const Range all = edges_of(a, row);
      Key* const relaxed = (Key*)a.relaxed + row;
      const Key before = load_key(relaxed);
      visit.distance = load_key(&keys[row]);
      // The row's distance may have fallen after it came into the pile, and its edges been relaxed with that.
      if (visit.distance != before) {
        *relaxed = visit.distance;
        edges = all;
      }
    }
    cut_long_rows(a, t, row, edges);
    walk(edges, visit);
  }
  tell_nearest(a, t, t.nearest, t.bucket);
}

// Put rows, of each tile one for each lane, into a list. All lanes of a warp call it.
__device__ __forceinline__ void put_tiles(const Weights& a, u32 slot, u32 turn, u32* list, u32 room,
                                          const u32 (&row)[kTiles], const u32 (&which)[kTiles]) {
  u32 count = 0;
#pragma unroll
  for (u32 i = 0; i < kTiles; ++i) count += __popc(which[i]);
  if (!count) return;
  u64 first = reserve(a, slot, turn, count);
#pragma unroll
  for (u32 i = 0; i < kTiles; ++i) {
    const u64 place = first + __popc(which[i] & lanes_below());
    if (which[i] >> lane_id() & 1 && place < room) list[place] = row[i];
    first += __popc(which[i]);
  }
}

// Make the rows of the far pile up to a new bound the near pile of the next round. The near pile of this one is empty.
template <class Op>
__device__ void next_bucket(const Weights& a, Thread<typename Op::Key>& t, typename Op::Key bound) {
  typedef typename Op::Key Key;
  const u32 count = size_of(a, kFarTails, t.bucket);
  const bool listed = count <= a.room;
  const u32 rows = listed ? count : (u32)a.rows;
  Key nearest = ~(Key)0;
  for (u32 first = warp_in_grid() * kLanes * kTiles; first < rows; first += warps_in_grid() * kLanes * kTiles) {
    u32 row[kTiles], near[kTiles], kept[kTiles];
    Key key[kTiles];
    bool has[kTiles];
#pragma unroll
    for (u32 i = 0; i < kTiles; ++i) {
      const u32 at = first + i * kLanes + lane_id();
      has[i] = at < rows;
      row[i] = has[i] && listed ? load_shared_by_gang(&a.lists[t.bucket & 1][at]) : at;
      if (has[i] && !listed) has[i] = has_bit(load_shared_by_gang(&a.far[at >> 5]), at);
      key[i] = has[i] ? load_key((const Key*)a.keys + row[i]) : 0;
    }
#pragma unroll
    for (u32 i = 0; i < kTiles; ++i) {
      // A row that came nearer since is final.
      const bool keeps = has[i] && key[i] > bound;
      if (has[i] && !keeps) atomicAnd(&a.far[row[i] >> 5], ~bit_of(row[i]));
      if (keeps && key[i] < nearest) nearest = key[i];
      near[i] = __ballot_sync(kAll, has[i] && !keeps && key[i] > t.bound);
      kept[i] = __ballot_sync(kAll, keeps);
    }
    put_tiles(a, kNearTails, t.round + 1, a.queues[(t.round + 1) & 1], (u32)a.rows, row, near);
    put_tiles(a, kFarTails, t.bucket + 1, a.lists[(t.bucket + 1) & 1], a.room, row, kept);
  }
  tell_nearest(a, t, nearest, t.bucket + 1);
}

}  // namespace dbfs
