// Places in queues and bins: a warp reserves once for all of its lanes that append to the same one.
#pragma once
#include "search/cuda/kernels/common/memory.cuh"

namespace dbfs {

// Reserve a place at `end` for each lane in `same`, and return this lane's. All lanes in `same` call it.
__device__ __forceinline__ u64 reserve(u64* end, u32 same) {
  const u32 first = __ffs(same) - 1;
  u64 at = 0;
  if (lane_id() == first) at = atomicAdd(end, (u64)__popc(same));
  return __shfl_sync(same, at, first) + __popc(same & lanes_below());
}

// Add a warp's sum to a counter: one atomic a warp.
__device__ __forceinline__ void add_sum(u64* counter, u64 per_lane) {
  for (u32 step = kLanes / 2; step; step >>= 1) per_lane += __shfl_xor_sync(kAll, per_lane, step);
  if (lane_id() == 0 && per_lane) atomicAdd(counter, per_lane);
}

// Claim an id that was not visited. A plain look comes first, since most were visited, so few lanes need the atomic.
__device__ __forceinline__ bool claim_unseen(u32* bitmap, u32 id) {
  return !has_bit(bitmap, id) && claim(bitmap, id);
}

}  // namespace dbfs
