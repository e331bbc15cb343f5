// The end of a repair: parents of the rows that changed, a bitmap of them, and the counts of all rows.
//
// A row costs 12 bytes: both distances and its parent. A row that changed looks at its neighbours.
#pragma once
#include "features/living/kernels/queue.cuh"

namespace dbfs {

// Give a row without a parent, or with another distance, a parent. A thread tries a few edges of its row alone; then the
// warp helps the rows that are left. All lanes of a warp call it.
__device__ void choose_parent(const Repair& a, Thread& t, u32 row, bool wants, i32 wanted) {
  Range edges = {0, 0};
  if (wants) edges = edges_of(a.in_offsets, row);
  for (u32 tried = 0; wants && tried < kSerial && edges.begin < edges.end; ++tried, ++edges.begin) {
    const u32 other = __ldg(&a.in_columns[edges.begin]);
    if (distance_of(a, other) == wanted) {
      a.parents[row] = other;
      wants = false;
    }
  }
  for (u32 rest = __ballot_sync(kAll, wants && edges.begin < edges.end); rest; rest &= rest - 1) {
    const u32 from = __ffs(rest) - 1;
    const u32 helped = __shfl_sync(kAll, row, from);
    const i32 nearer = __shfl_sync(kAll, wanted, from);
    const i64 end = __shfl_sync(kAll, edges.end, from);
    u32 steps = 0;
    bool found = false;
    for (i64 k = __shfl_sync(kAll, edges.begin, from) + lane_id(); __any_sync(kAll, !found && k < end); k += kLanes) {
      const u32 other = k < end ? __ldg(&a.in_columns[k]) : helped;
      const bool hit = k < end && distance_of(a, other) == nearer;
      if (hit) a.parents[helped] = other;
      found = __any_sync(kAll, hit) != 0;
      if (too_late(a, t, steps)) return;
    }
  }
}

// Choose parents, and count the rows that are reached, the edges of the others, and the largest distance.
__device__ void finish(const Repair& a, Thread& t) {
  u64 missing = 0;
  u32 reached = 0;
  i32 depth = 0;
  for (i64 at = (i64)warp_in_grid() * kLanes; at < a.rows; at += (i64)warps_in_grid() * kLanes) {
    // There are multiples of 32 rows.
    const u32 row = (u32)(at + lane_id());
    const i32 distance = distance_of(a, row);
    const bool differs = distance != a.before[row];
    const u32 changed = __ballot_sync(kAll, differs);
    if (lane_id() == 0) a.changed[row >> 5] = changed;
    const bool wants = distance > 0 && (differs || load_shared_by_gang(&a.parents[row]) == kNoVertex);
    if (__any_sync(kAll, wants)) choose_parent(a, t, row, wants, distance - 1);
    reached += distance >= 0;
    depth = distance > depth ? distance : depth;
    if (distance < 0) missing += a.offsets[row + 1] - a.offsets[row];
  }
  for (u32 step = kLanes / 2; step; step >>= 1) {
    missing += __shfl_xor_sync(kAll, missing, step);
    reached += __shfl_xor_sync(kAll, reached, step);
    const i32 other = __shfl_xor_sync(kAll, depth, step);
    depth = other > depth ? other : depth;
  }
  if (lane_id()) return;
  if (reached) atomicAdd((u64*)(a.control + kReached), (u64)reached);
  if (missing) atomicAdd((u64*)(a.control + kMissing), missing);
  if (depth) atomicMax(&a.control[kDepth], (u32)depth);
}

}  // namespace dbfs
