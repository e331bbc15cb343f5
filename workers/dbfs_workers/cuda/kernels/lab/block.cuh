// Prefix sums over the threads of a block, and the places of a queue that a block reserves by one atomic operation
// (Merrill 2012).
#pragma once
#include "lab/problem.cuh"

namespace dbfs {
namespace lab {

struct BlockScratch {
  u64 before[kWarps];  // sums of the warps below
  u64 total;
};

// The sum of `value` over the lanes below; over all lanes in `total`.
__device__ __forceinline__ u64 warp_sums(u64 value, u64& total) {
  u64 sum = value;
  for (u32 step = 1; step < kLanes; step <<= 1) {
    const u64 other = __shfl_up_sync(kAll, sum, step);
    if (lane() >= step) sum += other;
  }
  total = __shfl_sync(kAll, sum, kLanes - 1);
  return sum - value;
}

// Turn the warps' totals into sums over the warps below, starting at `*tail`, to which the sum of all is added; at 0 if
// `tail` is null. Returns the value for this thread's warp; the block's sum is in `s.total`. All threads call it.
__device__ __forceinline__ u64 combine(u64 warp_total, u64* tail, BlockScratch& s) {
  __syncthreads();
  if (lane() == 0) s.before[warp()] = warp_total;
  __syncthreads();
  if (warp() == 0) {
    u64 total;
    const u64 below = warp_sums(lane() < kWarps ? s.before[lane()] : 0, total);
    const u64 start = __shfl_sync(kAll, tail && total && lane() == 0 ? atomicAdd(tail, total) : 0, 0);
    if (lane() < kWarps) s.before[lane()] = start + below;
    if (lane() == 0) s.total = total;
  }
  __syncthreads();
  return s.before[warp()];
}

// The sum of `value` over the threads below; over the block in `total`.
__device__ __forceinline__ u64 block_sums(u64 value, BlockScratch& s, u64& total) {
  u64 warp_total;
  const u64 below = warp_sums(value, warp_total);
  const u64 sum = combine(warp_total, nullptr, s) + below;
  total = s.total;
  return sum;
}

// Append the valid ids of all threads to the output queue, behind one another. A full queue takes no more, and its
// counter says how many entries it would need.
template <u32 kSize>
__device__ __forceinline__ void append(const LabArguments& a, const BatchOf<kSize>& batch, BlockScratch& s) {
  u32 places[kSize], warp_total = 0;
#pragma unroll
  for (u32 item = 0; item < kSize; ++item) {
    const u32 ballot = __ballot_sync(kAll, batch.has(item));
    places[item] = warp_total + __popc(ballot & ((1u << lane()) - 1));
    warp_total += __popc(ballot);
  }
  const u64 first = combine(warp_total, a.counters + kQueued, s);
#pragma unroll
  for (u32 item = 0; item < kSize; ++item) {
    const u64 place = first + places[item];
    if (batch.has(item) && place < a.out_capacity) {
      a.out_ids[place] = batch.ids[item];
      if (a.out_parents) a.out_parents[place] = batch.vertices[item];
    }
  }
}

}  // namespace lab
}  // namespace dbfs
