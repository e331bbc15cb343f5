// Doubt: rows whose parent is no support any more find another one, or lose their distance.
//
// A row costs 16 bytes of offsets, its label and its parent, and for each edge a column, a label and a parent.
#pragma once
#include "features/living/kernels/queue.cuh"

namespace dbfs {

// Queue the children of the deleted edges for round 0.
__device__ void doubt_deleted(const Repair& a, Thread& t, Shared& s) {
  for (u32 at = warp_in_grid() * kLanes; at < a.deletions; at += warps_in_grid() * kLanes) {
    const u32 index = at + lane_id();
    u32 row = 0, child = 0;
    if (index < a.deletions) {
      row = a.deleted[index];
      child = a.deleted[a.deletions + index];
    }
    // A source is its own parent.
    const bool doubted = row != child && atomicCAS(&a.parents[child], row, kNoVertex) == row;
    queue_row<true>(a, t, s, child, {0, 0}, doubted, 0);
  }
}

// Put a row's children into doubt. Groups without a row have no edges. All lanes of a warp call it.
template <bool kWhole>
__device__ __forceinline__ void doubt_children(const Repair& a, Thread& t, Shared& s, u32 row, Range edges) {
  u32 steps = 0;
  for (i64 k = edges.begin + (lane_id() & (a.lanes - 1)); __any_sync(kAll, k < edges.end); k += a.lanes) {
    const u32 child = k < edges.end ? __ldg(&a.columns[k]) : 0;
    const Range ahead = edges_ahead<kWhole>(a.in_offsets, child, k < edges.end);
    const bool doubted = k < edges.end && atomicCAS(&a.parents[child], row, kNoVertex) == row;
    queue_row<kWhole>(a, t, s, child, ahead, doubted, t.round + 1);
    if (too_late(a, t, steps)) return;
  }
}

// Round of doubt.
template <bool kWhole>
__device__ void settle(const Repair& a, Thread& t, Shared& s, u32 size) {
  const u32 rows = kLanes / a.lanes, warps = kWhole ? warps_in_grid() : kWarps;
  const u32 group = (a.lanes == kLanes ? kAll : (1u << a.lanes) - 1) << (lane_id() & ~(a.lanes - 1));
  for (u32 at = (kWhole ? warp_in_grid() : warp_in_block()) * rows; at < size; at += warps * rows) {
    const u32 index = at + lane_id() / a.lanes;
    Range edges = {0, 0};
    u32 row = 0;
    i32 wanted = 0;
    if (index < size) {
      row = take_row<kWhole>(a, t, s, a.in_offsets, index, edges);
      wanted = distance_of(a, row) - 1;
    }
    bool supported = false, waits = false;
    u32 steps = 0;
    for (i64 k = edges.begin + (lane_id() & (a.lanes - 1)); __any_sync(kAll, !supported && k < edges.end);
         k += a.lanes) {
      bool firm = false, weak = false;
      if (!supported && k < edges.end) {
        const u32 other = __ldg(&a.in_columns[k]);
        prefetch(&a.in_offsets[other]);
        const u32 parent = load_shared_by_gang(&a.parents[other]);
        const bool near = distance_of(a, other) == wanted;
        firm = near && parent != kNoVertex;
        weak = near && parent == kNoVertex;
        if (firm) a.parents[row] = other;
      }
      supported |= (__ballot_sync(kAll, firm) & group) != 0;
      waits |= (__ballot_sync(kAll, weak) & group) != 0;
      if (too_late(a, t, steps)) return;
    }
    queue_row<kWhole>(a, t, s, row, edges, index < size && !supported && waits && leads(a), t.round + 1);
    const bool loses = index < size && !supported && !waits;
    const u32 place = reserve(kWhole ? &a.control[kLost] : &s.losses, loses && leads(a));
    if (loses && leads(a)) {
      a.distances[row] = -1;
      put(a, t, a.lost, place, row);
    }
    if (!loses) edges = {0, 0};
    if (loses && a.in_offsets != a.offsets) edges = edges_of(a.offsets, row);
    doubt_children<kWhole>(a, t, s, row, edges);
  }
}

}  // namespace dbfs
