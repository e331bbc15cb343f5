// The rounds of a bucket, and the next bucket: relax the edges of the near pile, and make a new one of the far pile.
//
// A row that is near takes its offsets, its key, and for each edge a column, a weight, and a look at a key. A row is once
// in a pile at most, by a bit. The far pile is a list too while that has room: of a few rows a list is read faster, of
// many the bitmap and the keys, which lie in a row.
#pragma once
#include "features/weights/kernels/walk.cuh"

namespace dbfs {

// Put rows, `count` of them in the warp, into the far pile, whose bitmap has them.
template <u32 kCount, class Key>
__device__ __forceinline__ void put_far(const Weights& a, Thread<Key>& t, const u32 (&row)[kCount],
                                        const u32 (&which)[kCount]) {
  put_listed(a, t.far_listed, kFarTails, t.bucket, a.lists[t.bucket & 1], row, which);
}

// Note that a row of a lane, or none, is far; true if the far pile lacks it.
template <class Key>
__device__ __forceinline__ bool claim_far(const Weights& a, Thread<Key>& t, Shared& s, u32 row, Key key, bool is_far) {
  // Of several ranks the block notes the least key at once, since registers are scarce.
  if (kGang && is_far && key < *(volatile u64*)&s.least) atomicMin(&s.least, (u64)key);
  if (!kGang && is_far && key < t.nearest) t.nearest = key;
  return is_far && !has_bit(load_shared_by_gang(&a.far[row >> 5]), row) && claim(a.far, row);
}

// Relaxes edges of rows, each lane having the key of its row. Rows whose distance falls come into their piles. So do ids of
// peers' rows whose distance falls below the least one that this rank has sent.
template <class Op>
struct Relax {
  typedef typename Op::Key Key;
  static constexpr u32 kUnroll = Op::kUnroll;
  const Weights& a;
  Thread<Key>& t;
  Shared& s;
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
    }
#pragma unroll
    for (u32 i = 0; i < kUnroll; ++i) nearer[i] = place[i] >= 0 && key[i] < load_key(value_of(a, (Key*)a.keys, row[i]));
    bool any = false;
#pragma unroll
    for (u32 i = 0; i < kUnroll; ++i) any |= nearer[i];
    if (!__any_sync(kAll, any)) return;
#pragma unroll
    for (u32 i = 0; i < kUnroll; ++i) {
      if (nearer[i]) nearer[i] = key[i] < atomicMin(value_of(a, (Key*)a.keys, row[i]), key[i]);
    }
    if (kGang) {
      u32 sent[kUnroll];
#pragma unroll
      for (u32 i = 0; i < kUnroll; ++i) {
        const bool sends = nearer[i] && !is_own(a, row[i]);
        sent[i] = __ballot_sync(kAll, sends && claim(a.sent_bits[(t.round + 1) & 1], row[i]));
        nearer[i] = nearer[i] && !sends;
      }
      put_sent(a, t, row, sent);
    }
    u32 near[kUnroll], far[kUnroll];
#pragma unroll
    for (u32 i = 0; i < kUnroll; ++i) {
      row[i] = row_of(a, row[i]);
      const bool is_far = nearer[i] && key[i] > t.bound;
      near[i] = nearer[i] && !is_far && claim(a.near[(t.round + 1) & 1], row[i]);
      far[i] = claim_far(a, t, s, row[i], key[i], is_far);
    }
#pragma unroll
    for (u32 i = 0; i < kUnroll; ++i) {
      near[i] = __ballot_sync(kAll, near[i]);
      far[i] = __ballot_sync(kAll, far[i]);
    }
    put_near(a, t, row, near);
    put_far(a, t, row, far);
  }
};

// Take the key that a peer has sent for a row of a lane. Return whether the row is near for that.
template <class Key>
__device__ __forceinline__ bool contract(const Weights& a, Thread<Key>& t, Shared& s, u32 row, bool has,
                                         u32 from) {
  Key* const own = (Key*)a.keys + row;
  Key key = 0;
  if (has) {
    key = load_key(of_peer(s, own, from));
    has = key < load_key(own) && key < atomicMin(own, key);
  }
  const bool is_far = has && key > t.bound;
  const u32 rows[1] = {row}, far[1] = {__ballot_sync(kAll, claim_far(a, t, s, row, key, is_far))};
  put_far(a, t, rows, far);
  return has && !is_far;
}

// Note the least key of a warp's that went into the far pile.
template <class Key>
__device__ __forceinline__ void note_nearest(Shared& s, Key nearest) {
  for (u32 step = kLanes / 2; step; step >>= 1) {
    const Key other = __shfl_xor_sync(kAll, nearest, step);
    nearest = other < nearest ? other : nearest;
  }
  if (lane_id() == 0 && nearest != (Key)~(Key)0) atomicMin(&s.least, (u64)nearest);
}

// Relax the edges of the near pile: a round.
template <class Op>
__device__ void relax(const Weights& a, Thread<typename Op::Key>& t, Shared& s) {
  typedef typename Op::Key Key;
  const Key* keys = (const Key*)a.keys;
  t.nearest = ~(Key)0;
  t.far_listed = s.far < a.room;
  t.near_listed = t.sent_listed = true;
  walk_pieces(a, t, s, [&](u32 row) { return Relax<Op>{a, t, s, load_key(&keys[row])}; });
  take_near(a, t, s, [&](u32 row, bool has, u32 from) {
    if (kGang && from != a.rank) has = contract(a, t, s, row, has, from);
    Range edges = {0, 0};
    Relax<Op> visit = {a, t, s, 0};
    if (has) {
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
    const u32 taken = __popc(__ballot_sync(kAll, edges.begin < edges.end));
    if (!taken) return;
    cut_long_rows(a, t, row, edges);
    const u32 walked = walk(edges, visit);
    if (lane_id()) return;
    atomicAdd(&s.edges, (u64)walked);
    atomicAdd(&s.taken, (u64)taken);
  });
  __syncwarp();
  note_nearest(s, t.nearest);
}

// Make the rows of the far pile up to a new bound the near pile of the next round. The near pile of this one is empty.
// A block takes places in the lists for all of its warps at once.
template <class Op>
__device__ void next_bucket(const Weights& a, Thread<typename Op::Key>& t, Shared& s, typename Op::Key bound) {
  typedef typename Op::Key Key;
  const bool listed = s.far < a.room;
  u32* const bits = a.near[(t.round + 1) & 1];
  const u32 rows = listed ? s.far : (u32)a.rows;
  constexpr u32 kTile = kThreads * kTiles;
  Key nearest = ~(Key)0;
  for (u32 tile = t.block() * kTile; tile < rows; tile += t.blocks() * kTile) {
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
      if (listed && near[i] >> lane_id() & 1) set_bit(bits, row[i]);
      if (!listed && lane_id() == 0 && near[i]) bits[row[i] >> 5] = near[i];
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
    put(s.firsts[0] + __shfl_sync(kAll, own[0], 0), a.queues[(t.round + 1) & 1], a.room, row, near);
    put(s.firsts[1] + __shfl_sync(kAll, own[1], 0), a.lists[(t.bucket + 1) & 1], a.room, row, kept);
  }
  note_nearest(s, nearest);
}

}  // namespace dbfs
