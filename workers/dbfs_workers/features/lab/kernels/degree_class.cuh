// Queues by class: a vertex belongs to the unit that its list fills, a thread, a warp, a block or the grid (Tödling 2019).
#pragma once
#include "features/lab/kernels/claimed_level.cuh"

namespace dbfs {
namespace lab {

constexpr u32 kClassBits = 16;  // of a packed count: a block appends fewer than 2^16 vertices at a time
static_assert(kThreads * kFindsAlone < 1 << kClassBits, "a count of a block must fit its bits");
constexpr u64 kClassMask = (1u << kClassBits) - 1;

struct ClassScratch {
  GatherScratch gather;
  u64 bases[kClasses];
};

__device__ __forceinline__ u32 class_of(const LabArguments& a, i64 degree) {
  return (degree >= kLanes) + (degree >= kThreads) + (degree >= a.grid_degree);
}

// The class that a launch before the first level wrote, or that of the vertex's list.
__device__ __forceinline__ u32 class_of_vertex(const LabArguments& a, u32 vertex) {
  return a.flags ? a.flags[vertex] : class_of(a, list_of(a, vertex).size());
}

// Append the valid ids of all threads, each to the queue of its class: `rows` entries of the output a class. One prefix sum
// places all classes, by counts packed into one word. All threads of the block call it.
template <u32 kSize>
__device__ __forceinline__ void append_by_class(const LabArguments& a, const ItemsOf<kSize>& items, ClassScratch& s) {
  u32 classes[kSize];
  u64 own = 0, total;
#pragma unroll
  for (u32 item = 0; item < kSize; ++item) {
    classes[item] = items.has(item) ? class_of_vertex(a, items.ids[item]) : 0;
    own += u64(items.has(item)) << classes[item] * kClassBits;
  }
  u64 before = block_sums(own, s.gather.block, total);
  if (threadIdx.x < kClasses) {
    const u64 count = total >> threadIdx.x * kClassBits & kClassMask;
    u64* tail = a.counters + kQueuedThreads + threadIdx.x;
    s.bases[threadIdx.x] = count ? atomicAdd(tail, count) : 0;
  }
  __syncthreads();
#pragma unroll
  for (u32 item = 0; item < kSize; ++item) {
    if (!items.has(item)) continue;
    const u32 shift = classes[item] * kClassBits;
    a.out_ids[u64(classes[item]) * a.rows + s.bases[classes[item]] + (before >> shift & kClassMask)] = items.ids[item];
    before += u64(1) << shift;
  }
}

// Sort finds while exploring, if their classes are written; else append them to one queue, which a pass sorts.
template <u32 kFinds>
__device__ __forceinline__ void append_found(const LabArguments& a, const ItemsOf<kFinds>& finds, ClassScratch& s) {
  if (a.flags) {
    append_by_class(a, finds, s);
  } else {
    append_finds(a, finds, s.gather.block);
  }
}

}  // namespace lab
}  // namespace dbfs
