// Search: rows that came nearer offer their distance to their neighbours.
//
// A row costs 16 bytes of offsets and its label, and for each edge a column and an atomic operation on a label.
#pragma once
#include "features/living/kernels/queue.cuh"

namespace dbfs {

// Offer a distance to `row`, which is queued for round `to` if that brings it nearer. All lanes of a warp call it.
template <bool kWhole>
__device__ __forceinline__ void offer(const Repair& a, Thread& t, Shared& s, u32 row, u32 distance, bool has, u32 to) {
  // As unsigned numbers, rows without a distance are the farthest.
  const Range ahead = edges_ahead<kWhole>(a.offsets, row, has);
  const bool nearer = has && distance < atomicMin((u32*)&a.distances[row], distance);
  queue_row<kWhole>(a, t, s, row, ahead, nearer, to);
}

// Round of the search. A row that comes nearer while the round is under way is queued for the next one.
template <bool kWhole>
__device__ void make_offers(const Repair& a, Thread& t, Shared& s, u32 size) {
  const u32 rows = kLanes / a.lanes, warps = kWhole ? warps_in_grid() : kWarps;
  for (u32 at = (kWhole ? warp_in_grid() : warp_in_block()) * rows; at < size; at += warps * rows) {
    const u32 index = at + lane_id() / a.lanes;
    Range edges = {0, 0};
    u32 distance = 0, steps = 0;
    if (index < size) distance = distance_of(a, take_row<kWhole>(a, t, s, a.offsets, index, edges));
    for (i64 k = edges.begin + (lane_id() & (a.lanes - 1)); __any_sync(kAll, k < edges.end); k += a.lanes) {
      const u32 other = k < edges.end ? __ldg(&a.columns[k]) : 0;
      offer<kWhole>(a, t, s, other, distance + 1, k < edges.end, t.round + 1);
      if (too_late(a, t, steps)) return;
    }
  }
}

// Give the lost rows the distances that their neighbours have to offer, and make the offers of the inserted edges. A
// neighbour that comes nearer meanwhile is queued, and makes its offers then.
__device__ void search_border(const Repair& a, Thread& t, Shared& s, u32 lost) {
  const u32 rows = kLanes / a.lanes;
  for (u32 at = warp_in_grid() * rows; at < lost; at += warps_in_grid() * rows) {
    const u32 index = at + lane_id() / a.lanes;
    Range edges = {0, 0};
    u32 row = 0, nearest = kNoVertex, steps = 0;
    if (index < lost) {
      row = load_shared_by_gang(&a.lost[index]);
      edges = edges_of(a.in_offsets, row);
    }
    for (i64 k = edges.begin + (lane_id() & (a.lanes - 1)); __any_sync(kAll, k < edges.end); k += a.lanes) {
      if (k < edges.end) {
        const u32 distance = (u32)distance_of(a, __ldg(&a.in_columns[k]));
        nearest = distance < nearest ? distance : nearest;
      }
      if (too_late(a, t, steps)) return;
    }
    for (u32 step = 1; step < a.lanes; step <<= 1) {
      const u32 other = __shfl_xor_sync(kAll, nearest, step);
      nearest = other < nearest ? other : nearest;
    }
    offer<true>(a, t, s, row, nearest + 1, leads(a) && nearest != kNoVertex, t.round);
  }
  for (u32 at = warp_in_grid() * kLanes; at < a.insertions; at += warps_in_grid() * kLanes) {
    const u32 index = at + lane_id();
    const bool has = index < a.insertions;
    const u32 distance = has ? (u32)distance_of(a, a.inserted[index]) : kNoVertex;
    const u32 column = has ? a.inserted[a.insertions + index] : 0;
    offer<true>(a, t, s, column, distance + 1, distance != kNoVertex, t.round);
  }
}

}  // namespace dbfs
