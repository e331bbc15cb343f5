// The walk over edges, and the lists that rows are put into.
#pragma once
#include "features/weights/kernels/launch.cuh"

namespace dbfs {

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

// Call `visit(from, place)` for the edges of rows, a row for each lane: the lane that has the row and the place of the
// edge, or -1 for none, of Visit::kUnroll edges a lane. All lanes share all edges. Rows have up to kPiece of them.
template <class Visit>
__device__ __forceinline__ void walk(Range edges, Visit& visit) {
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
}

// Put the pieces of long rows into the list of the next round. Those rows keep no edges. All lanes call it.
template <class Key>
__device__ __forceinline__ void cut_long_rows(const Weights& a, const Thread<Key>& t, u32 row, Range& edges) {
  const bool is_long = edges.end - edges.begin > (i64)kPiece;
  for (u32 rest = __ballot_sync(kAll, is_long); rest; rest &= rest - 1) {
    const u32 from = __ffs(rest) - 1;
    const u32 pieces = (u32)((__shfl_sync(kAll, edges.end - edges.begin, from) + kPiece - 1) / kPiece);
    const u64 whole = (u64)__shfl_sync(kAll, row, from) << 32;
    const u64 first = reserve(a, kPieceTails, t.round + 1, pieces);
    for (u32 piece = lane_id(); piece < pieces; piece += kLanes) a.pieces[(t.round + 1) & 1][first + piece] = whole | piece;
  }
  if (is_long) edges = {0, 0};
}

// Call `visit` for the edges of the pieces of a round, a piece for each warp; `make(row)` returns it.
template <class Key, class Make>
__device__ __forceinline__ void walk_pieces(const Weights& a, const Thread<Key>& t, const Shared& s, Make make) {
  for (u32 at = t.warp; at < s.pieces; at += t.warps) {
    const u64 entry = load_relaxed(&a.pieces[t.round & 1][at]);
    const Range whole = edges_of(a, (u32)(entry >> 32));
    const i64 begin = whole.begin + (i64)(u32)entry * kPiece;
    Range edges = {0, 0};
    if (lane_id() == 0) edges = {begin, whole.end < begin + (i64)kPiece ? whole.end : begin + (i64)kPiece};
    auto visit = make((u32)(entry >> 32));
    walk(edges, visit);
  }
}

}  // namespace dbfs
