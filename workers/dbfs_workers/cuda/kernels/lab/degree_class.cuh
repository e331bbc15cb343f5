// Queues by class: a vertex belongs to the unit that its list fills, a thread, a warp, a block or the grid (Tödling 2019).
#pragma once
#include "lab/workspace.cuh"

namespace dbfs {
namespace lab {

constexpr u32 kClassBits = 16;  // of a packed count: a block appends fewer than 2^16 vertices at a time
constexpr u64 kClassMask = (1u << kClassBits) - 1;

struct ClassScratch {
  GatherScratch gather;
  u64 bases[kClasses];
};

__device__ __forceinline__ u32 class_of(const LabArguments& a, i64 degree) {
  return (degree >= kLanes) + (degree >= kThreads) + (degree >= a.grid_degree);
}

// Append the ids of threads with `wanted`, each to the queue of its class: `rows` entries of the output a class. One
// prefix sum places all classes, by counts packed into one word. All threads of the block call it.
__device__ __forceinline__ void append_by_class(const LabArguments& a, bool wanted, u32 id, ClassScratch& s) {
  const u32 own = wanted ? a.flags[id] : 0, shift = own * kClassBits;
  u64 warp_total;
  const u64 below = warp_sums(wanted ? u64(1) << shift : 0, warp_total);
  const u64 before = combine(warp_total, nullptr, s.gather.block) + below;
  if (threadIdx.x < kClasses) {
    const u64 count = s.gather.block.total >> threadIdx.x * kClassBits & kClassMask;
    u64* tail = a.counters + kQueuedThreads + threadIdx.x;
    s.bases[threadIdx.x] = a.tails[threadIdx.x] + (count ? atomicAdd(tail, count) : 0);
  }
  __syncthreads();
  if (wanted) a.out_ids[u64(own) * a.rows + s.bases[own] + (before >> shift & kClassMask)] = id;
}

}  // namespace lab
}  // namespace dbfs
