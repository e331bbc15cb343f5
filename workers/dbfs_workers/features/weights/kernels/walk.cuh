// The walk over edges, and the lists that rows are put into.
#pragma once
#include "features/weights/kernels/gang.cuh"

namespace dbfs {

// Nothing is queued for a round yet.
__device__ __forceinline__ void clear_tails(const Weights& a, u32 round) {
  *word(a, kNearTails, round) = *word(a, kPieceTails, round) = *word(a, kSentTails, round) = *word(a, kOrphans, round) = 0;
}

struct Range {
  i64 begin, end;
};

__device__ __forceinline__ Range edges_of(const Weights& a, u32 row) {
  return {__ldg(&a.offsets[row]), __ldg(&a.offsets[row + 1])};
}

// The first of `count` places in a list, the same for all lanes, which all call it.
__device__ __forceinline__ u64 reserve(const Weights& a, u32 slot, u32 turn, u32 count) {
  u64 first = 0;
  if (lane_id() == 0) first = atomicAdd(word(a, slot, turn), (u64)count);
  return __shfl_sync(kAll, first, 0);
}

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

// Put rows that lanes have marked in a pile's bitmap, `which` by the lanes of each, into the pile's list while that has
// room. A full list is not counted any further: all warps would wait for one word.
template <u32 kCount>
__device__ __forceinline__ void put_listed(const Weights& a, bool& listed, u32 slot, u32 turn, u32* list,
                                           const u32 (&row)[kCount], const u32 (&which)[kCount]) {
  u32 count = 0;
#pragma unroll
  for (u32 i = 0; i < kCount; ++i) count += __popc(which[i]);
  if (!count || !listed) return;
  const u64 first = reserve(a, slot, turn, count);
  put(first, list, a.room, row, which);
  listed = first + count < a.room;
}

// Put rows into the next near pile, whose bitmap has them.
template <u32 kCount, class Key>
__device__ __forceinline__ void put_near(const Weights& a, Thread<Key>& t, const u32 (&row)[kCount],
                                         const u32 (&which)[kCount]) {
  put_listed(a, t.near_listed, kNearTails, t.round + 1, a.queues[(t.round + 1) & 1], row, which);
}

// Put peers' ids among those that this round sends, whose bitmap has them.
template <u32 kCount, class Key>
__device__ __forceinline__ void put_sent(const Weights& a, Thread<Key>& t, const u32 (&id)[kCount],
                                         const u32 (&which)[kCount]) {
  put_listed(a, t.sent_listed, kSentTails, t.round + 1, a.sent[(t.round + 1) & 1], id, which);
}

// A rank's pile of rows for a round: the near pile of this one's, or what a peer has sent, as a list of ids and as a bitmap
// of this rank's rows. Its places are computed at each use, since the walk needs the registers.
template <class Key>
struct Pile {
  const Weights& a;
  const Thread<Key>& t;
  const Shared& s;
  u32 from;

  __device__ __forceinline__ bool is_own() const { return !kGang || from == a.rank; }
  __device__ __forceinline__ u32 count() const { return is_own() ? s.near : s.sent[from]; }
  __device__ __forceinline__ u32* bits() const {
    return is_own() ? a.near[t.round & 1] : of_peer(s, a.sent_bits[t.round & 1] + first_id(a) / kLanes, from);
  }
  // The row of an entry of the list; of those that are sent to others none.
  __device__ __forceinline__ u32 row(u32 at) const {
    return is_own() ? load_shared_by_gang(&a.queues[t.round & 1][at])
                    : load_shared_by_gang(of_peer(s, a.sent[t.round & 1] + at, from)) - first_id(a);
  }
};

// Call `take(row, has)` for the rows of a pile, a row for each lane. The bitmap is cleared.
template <class Key, class Take>
__device__ __forceinline__ void take_pile(const Weights& a, const Thread<Key>& t, const Pile<Key>& pile, Take take) {
  const u32 count = pile.count();
  if (!count) return;
  if (count < a.room) {
    // A short pile is spread over all warps.
    const u32 share = (count + t.warps() - 1) / t.warps(), rows = share < kLanes ? share : kLanes;
    for (u32 first = t.warp() * rows; first < pile.count(); first += t.warps() * rows) {
      const u32 at = first + lane_id();
      bool has = lane_id() < rows && at < pile.count();
      u32 row = 0;
      if (has) {
        row = pile.row(at);
        has = !kGang || row < a.rows;
      }
      // All of the word's rows are in the list.
      if (has) pile.bits()[row >> 5] = 0;
      take(row, has);
    }
    return;
  }
  // A lane reads a word; then the rows of each word are a step.
  for (u32 first = t.warp() * kLanes; first < a.rows / kLanes; first += t.warps() * kLanes) {
    const u32 at = first + lane_id();
    u32 own = 0;
    if (at < a.rows / kLanes) own = load_shared_by_gang(&pile.bits()[at]);
    if (own) pile.bits()[at] = 0;
    for (u32 rest = __ballot_sync(kAll, own != 0); rest; rest &= rest - 1) {
      const u32 from = __ffs(rest) - 1;
      const u32 word = __shfl_sync(kAll, own, from);
      take((first + from) * kLanes + lane_id(), word >> lane_id() & 1);
    }
  }
}

// Call `take(row, has, from)` for the rows of the near pile, and for those that peers have sent in the round before. A rank
// begins with its own.
template <class Key, class Take>
__device__ __forceinline__ void take_near(const Weights& a, const Thread<Key>& t, const Shared& s, Take take) {
  u32 from = kGang ? a.rank : 0;
  do {
    take_pile(a, t, Pile<Key>{a, t, s, from}, [&](u32 row, bool has) { take(row, has, from); });
    from = kGang && from + 1 < a.ranks ? from + 1 : 0;
  } while (kGang && from != a.rank);
}

// Call `visit(from, place)` for the edges of rows, a row for each lane: the lane that has the row and the place of the
// edge, or -1 for none, of Visit::kUnroll edges a lane. All lanes share all edges. Rows have up to kPiece of them. Return
// the number of edges.
template <class Visit>
__device__ __forceinline__ u32 walk(Range edges, Visit& visit) {
  constexpr u32 kUnroll = Visit::kUnroll;
  u32 total;
  const u32 first = scan_exclusive((u32)(edges.end - edges.begin), total);
  for (u32 base = 0; base < total; base += kLanes * kUnroll) {
    u32 from[kUnroll];
    i64 place[kUnroll];
#pragma unroll
    for (u32 i = 0; i < kUnroll; ++i) {
      const u32 edge = base + i * kLanes + lane_id();
      u32 lane = 0;
#pragma unroll
      for (u32 step = kLanes / 2; step; step >>= 1) {
        if (__shfl_sync(kAll, first, lane + step) <= edge) lane += step;
      }
      const i64 at = __shfl_sync(kAll, edges.begin, lane) + (edge - __shfl_sync(kAll, first, lane));
      from[i] = lane;
      place[i] = edge < total ? at : -1;
    }
    visit(from, place);
  }
  return total;
}

// Put the pieces of long rows into the list of the next round. Those rows keep no edges. All lanes call it.
template <class Key>
__device__ __forceinline__ void cut_long_rows(const Weights& a, const Thread<Key>& t, u32 row, Range& edges) {
  const bool is_long = edges.end - edges.begin > (i64)kPiece;
  u32 rest = __ballot_sync(kAll, is_long);
  if (!rest) return;
  const u32 pieces = is_long ? (u32)((edges.end - edges.begin + kPiece - 1) / kPiece) : 0;
  u32 total;
  const u32 own = scan_exclusive(pieces, total);
  u64* const list = a.pieces[(t.round + 1) & 1] + reserve(a, kPieceTails, t.round + 1, total);
  for (; rest; rest &= rest - 1) {
    const u32 from = __ffs(rest) - 1, first = __shfl_sync(kAll, own, from), count = __shfl_sync(kAll, pieces, from);
    const u64 whole = (u64)__shfl_sync(kAll, row, from) << 32;
    for (u32 piece = lane_id(); piece < count; piece += kLanes) list[first + piece] = whole | piece;
  }
  if (is_long) edges = {0, 0};
}

// Call `visit` for the edges of the pieces of a round, a piece for each warp; `make(row)` returns it.
template <class Key, class Make>
__device__ __forceinline__ void walk_pieces(const Weights& a, const Thread<Key>& t, Shared& s, Make make) {
  for (u32 at = t.warp(); at < s.pieces; at += t.warps()) {
    const u64 entry = load_relaxed(&a.pieces[t.round & 1][at]);
    const Range whole = edges_of(a, (u32)(entry >> 32));
    const i64 begin = whole.begin + (i64)(u32)entry * kPiece;
    Range edges = {0, 0};
    if (lane_id() == 0) edges = {begin, whole.end < begin + (i64)kPiece ? whole.end : begin + (i64)kPiece};
    auto visit = make((u32)(entry >> 32));
    const u32 walked = walk(edges, visit);
    if (lane_id() == 0) atomicAdd(&s.edges, (u64)walked);
  }
}

}  // namespace dbfs
