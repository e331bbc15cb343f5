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
  if (threadIdx.x == 0) {
    u64 total = 0;
    for (u32 w = 0; w < kWarps; ++w) total += s.before[w];
    u64 sum = tail && total ? atomicAdd(tail, total) : 0;
    for (u32 w = 0; w < kWarps; ++w) {
      const u64 own = s.before[w];
      s.before[w] = sum;
      sum += own;
    }
    s.total = total;
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

// Append the ids of threads with `wanted` to the output queue, behind one another. A full queue takes no more, and its
// counter says how many entries it would need.
__device__ __forceinline__ void append(const LabArguments& a, bool wanted, u32 id, u32 parent, BlockScratch& s) {
  const u32 ballot = __ballot_sync(kAll, wanted);
  const u64 place = combine(__popc(ballot), a.counters + kQueued, s) + __popc(ballot & ((1u << lane()) - 1));
  if (wanted && place < a.out_capacity) {
    a.out_ids[place] = id;
    if (a.out_parents) a.out_parents[place] = parent;
  }
}

}  // namespace lab
}  // namespace dbfs
