// The rounds of a bucket, and the next bucket: relax the edges of the near pile, and make a new one of the far pile.
//
// A row that is near takes its offsets, its key, and for each edge a column, a weight, and a look at a key. A row is once
// in a pile at most, by a bit. The far pile is a list too while that has room: of a few rows a list is read faster, of
// many the bitmap and the keys, which lie in a row.
#pragma once
#include "features/weights/kernels/walk.cuh"

namespace dbfs {

// Put rows into a list with room for so many, from a place on: of lane l those of which `which` has the bit l.
template <u32 kCount>
__device__ __forceinline__ void put(u64 first, u32* list, u32 room, const u32 (&row)[kCount],
                                    const u32 (&which)[kCount]) {
#pragma unroll
  for (u32 i = 0; i < kCount; ++i) {
    const u64 place = first + __popc(which[i] & lanes_below());
    if (which[i] >> lane_id() & 1 && place < room) list[place] = row[i];
    first += __popc(which[i]);
  }
}

// Relaxes edges of rows, each lane having the key of its row. Rows whose distance falls come into their piles.
template <class Op>
struct Relax {
  typedef typename Op::Key Key;
  static constexpr u32 kUnroll = Op::kUnroll;
  const Weights& a;
  Thread<Key>& t;
  Key distance;

  // Each step is made for all edges before the next one, so that a lane waits for its loads together.
  __device__ __forceinline__ void operator()(const u32 (&from)[kUnroll], const i64 (&place)[kUnroll]) {
    u32 row[kUnroll];
    Key key[kUnroll];
    bool nearer[kUnroll];
#pragma unroll
    for (u32 i = 0; i < kUnroll; ++i) {
      key[i] = __shfl_sync(kAll, distance, from[i]);
      row[i] = 0;
      if (place[i] < 0) continue;
      row[i] = __ldg(&a.columns[place[i]]);
      key[i] = Op::add(key[i], __ldg((const typename Op::Weight*)a.weights + place[i]));
      ++t.edges;
    }
#pragma unroll
    for (u32 i = 0; i < kUnroll; ++i) nearer[i] = place[i] >= 0 && key[i] < load_key((const Key*)a.keys + row[i]);
    bool any = false;
#pragma unroll
    for (u32 i = 0; i < kUnroll; ++i) any |= nearer[i];
    if (!__any_sync(kAll, any)) return;
#pragma unroll
    for (u32 i = 0; i < kUnroll; ++i) {
      if (nearer[i]) nearer[i] = key[i] < atomicMin((Key*)a.keys + row[i], key[i]);
      t.fell += nearer[i];
    }
    u32 near[kUnroll], far[kUnroll];
#pragma unroll
    for (u32 i = 0; i < kUnroll; ++i) {
      const bool is_far = nearer[i] && key[i] > t.bound;
      if (is_far && key[i] < t.nearest) t.nearest = key[i];
      near[i] = nearer[i] && !is_far && claim(a.near[(t.round + 1) & 1], row[i]);
      far[i] = is_far && !has_bit(load_shared_by_gang(&a.far[row[i] >> 5]), row[i]) && claim(a.far, row[i]);
    }
    u32 nears = 0, fars = 0;
#pragma unroll
    for (u32 i = 0; i < kUnroll; ++i) {
      near[i] = __ballot_sync(kAll, near[i]);
      far[i] = __ballot_sync(kAll, far[i]);
      nears += __popc(near[i]);
      fars += __popc(far[i]);
    }
    if (nears) put(reserve(a, kNearTails, t.round + 1, nears), a.queues[(t.round + 1) & 1], (u32)a.rows, row, near);
    if (fars && t.listed) {
      const u64 first = reserve(a, kFarTails, t.bucket, fars);
      put(first, a.lists[t.bucket & 1], a.room, row, far);
      t.listed = first < a.room;
    }
  }
};

// Tell all blocks the least key that went into the far pile.
template <class Key>
__device__ __forceinline__ void tell_nearest(const Weights& a, Thread<Key>& t, Key nearest, u32 bucket) {
  for (u32 step = kLanes / 2; step; step >>= 1) {
    const Key other = __shfl_xor_sync(kAll, nearest, step);
    nearest = other < nearest ? other : nearest;
  }
  if (lane_id() == 0 && nearest != (Key)~(Key)0) atomicMin(word(a, kNearest, bucket), (u64)nearest);
}

// Relax the edges of the near pile: a round.
template <class Op>
__device__ void relax(const Weights& a, Thread<typename Op::Key>& t, const Shared& s) {
  typedef typename Op::Key Key;
  const Key* keys = (const Key*)a.keys;
  t.nearest = ~(Key)0;
  t.listed = s.far <= a.room;
  walk_pieces(a, t, s, [&](u32 row) { return Relax<Op>{a, t, load_key(&keys[row])}; });
  // A short pile is spread over all warps.
  const u32 near = s.near, share = (near + t.warps - 1) / t.warps, rows = share < kLanes ? share : kLanes;
  for (u32 first = t.warp * rows; first < near; first += t.warps * rows) {
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

// Make the rows of the far pile up to a new bound the near pile of the next round. The near pile of this one is empty.
// A block takes places in the lists for all of its warps at once.
template <class Op>
__device__ void next_bucket(const Weights& a, Thread<typename Op::Key>& t, Shared& s, typename Op::Key bound) {
  typedef typename Op::Key Key;
  const bool listed = s.far <= a.room;
  const u32 rows = listed ? s.far : (u32)a.rows;
  constexpr u32 kTile = kThreads * kTiles;
  Key nearest = ~(Key)0;
  for (u32 tile = t.block * kTile; tile < rows; tile += t.blocks * kTile) {
    u32 row[kTiles], near[kTiles], kept[kTiles];
    Key key[kTiles];
    bool has[kTiles];
#pragma unroll
    for (u32 i = 0; i < kTiles; ++i) {
      const u32 at = tile + i * kThreads + threadIdx.x;
      has[i] = at < rows;
      row[i] = has[i] && listed ? load_shared_by_gang(&a.lists[t.bucket & 1][at]) : at;
      if (has[i] && !listed) has[i] = has_bit(load_shared_by_gang(&a.far[at >> 5]), at);
      key[i] = has[i] ? load_key((const Key*)a.keys + row[i]) : 0;
    }
    u32 nears = 0, keeps = 0;
#pragma unroll
    for (u32 i = 0; i < kTiles; ++i) {
      // A row that came nearer since is final.
      const bool keep = has[i] && key[i] > bound;
      if (has[i] && !keep) atomicAnd(&a.far[row[i] >> 5], ~bit_of(row[i]));
      if (keep && key[i] < nearest) nearest = key[i];
      near[i] = __ballot_sync(kAll, has[i] && !keep && key[i] > t.bound);
      kept[i] = __ballot_sync(kAll, keep);
      nears += __popc(near[i]);
      keeps += __popc(kept[i]);
    }
    u32 own[2] = {0, 0};
    if (lane_id() == 0) {
      own[0] = atomicAdd(&s.counts[0], nears);
      own[1] = atomicAdd(&s.counts[1], keeps);
    }
    __syncthreads();
    if (threadIdx.x < 2) {
      const u32 slot = threadIdx.x ? kFarTails : kNearTails, turn = threadIdx.x ? t.bucket + 1 : t.round + 1;
      if (s.counts[threadIdx.x]) s.firsts[threadIdx.x] = atomicAdd(word(a, slot, turn), (u64)s.counts[threadIdx.x]);
      s.counts[threadIdx.x] = 0;
    }
    __syncthreads();
    put(s.firsts[0] + __shfl_sync(kAll, own[0], 0), a.queues[(t.round + 1) & 1], (u32)a.rows, row, near);
    put(s.firsts[1] + __shfl_sync(kAll, own[1], 0), a.lists[(t.bucket + 1) & 1], a.room, row, kept);
  }
  tell_nearest(a, t, nearest, t.bucket + 1);
}

}  // namespace dbfs
