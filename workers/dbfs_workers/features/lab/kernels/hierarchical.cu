// Hierarchical synchronisation (Luo, Wong and Hwu 2010): small frontiers run many levels in one launch.
//
// Vertices are claimed as in the atomic queue, and the next frontier has three tiers: queues of a few threads and of the
// block in shared memory, and the grid's. A frontier that one block holds is followed by one block, whose barrier ends a
// level; a larger one by a block for each multiprocessor, with a barrier of the grid; the largest take a launch a level.
// A launch ends when the frontier leaves the sizes [least, most] of its kind, or after `levels`. Each
// level has a row of counters, and the two queues take turns.
#include "features/lab/kernels/claimed_level.cuh"

using namespace dbfs;
using namespace dbfs::lab;

namespace {

constexpr u32 kQueues = 8;                           // of a block's first tier
constexpr u32 kRound = kThreads * kItems / kQueues;  // vertices that one of them gets at most in a round of gathering
constexpr u32 kRoom = 4 * kRound;

struct Tiers {
  u32 ids[kQueues][kRoom];
  u32 sizes[kQueues];
  u64 places[kQueues];
};

struct TieredScratch {
  GatherScratch gather;
  Tiers tiers;
};

// Empty the first tier. All threads of the block call it.
__device__ __forceinline__ void start_tiers(Tiers& t) {
  __syncthreads();
  if (threadIdx.x < kQueues) t.sizes[threadIdx.x] = 0;
  __syncthreads();
}

// Join the queues of the first tier into the block's, and put that behind the grid's by one atomic operation.
__device__ __forceinline__ void flush(const LabArguments& a, Tiers& t) {
  __syncthreads();
  if (warp() == 0) {
    u64 total;
    const u64 below = warp_sums(lane() < kQueues ? t.sizes[lane()] : 0, total);
    const u64 first = Behind{a}(total);
    if (lane() < kQueues) t.places[lane()] = first + below;
  }
  __syncthreads();
  for (u32 queue = 0; queue < kQueues; ++queue) {
    for (u32 at = threadIdx.x; at < t.sizes[queue]; at += kThreads) {
      if (t.places[queue] + at < a.out_capacity) a.out_ids[t.places[queue] + at] = t.ids[queue][at];
    }
  }
  start_tiers(t);
}

// Put the valid ids into the queue of this thread's number, which it shares with one thread in eight.
__device__ __forceinline__ void put(const LabArguments& a, const Items& items, Tiers& t) {
  const u32 queue = threadIdx.x % kQueues;
  if (__syncthreads_or(t.sizes[queue] > kRoom - kRound)) flush(a, t);
#pragma unroll
  for (u32 item = 0; item < kItems; ++item) {
    if (items.has(item)) t.ids[queue][atomicAdd(&t.sizes[queue], 1u)] = items.ids[item];
  }
}

__device__ __forceinline__ void tiered_level(const LabArguments& a, u64 size, TieredScratch& s, Tally& tally) {
  start_tiers(s.tiers);
  for_each_list(a, size, tally, [&](const List& list) {
    gather(a, list, s.gather, [&](Items items) {
      claim_unvisited(a, items, tally);
      put(a, items, s.tiers);
    });
  });
  flush(a, s.tiers);
}

// Wait until `arrivals` blocks have come to `count`. What threads of the grid wrote before is visible to all after it.
__device__ __forceinline__ void grid_barrier(u32* count, u32 arrivals) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(count, 1u);
    while (atomicAdd(count, 0u) < arrivals) {
    }
    __threadfence();
  }
  __syncthreads();
}

template <class Wait>
__device__ __forceinline__ void follow(const LabArguments& a, TieredScratch& s, Wait wait) {
  u64 size = in_size(a);
  for (u32 level = 0; level < a.levels && size >= a.least && size <= a.most; ++level) {
    LabArguments now = a;
    now.counters += u64(level) * kCounters;
    now.distance += level;
    if (level & 1) {
      now.in_ids = a.out_ids;
      now.out_ids = const_cast<u32*>(a.in_ids);
    }
    Tally tally;
    tiered_level(now, size, s, tally);
    tally.add_to(now.counters);
    wait(level);
    size = __ldcg(&now.counters[kQueued]);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_in_block(const LabArguments a) {
  __shared__ TieredScratch s;
  follow(a, s, [](u32) {
    __threadfence();
    __syncthreads();
  });
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_in_grid(const LabArguments a) {
  __shared__ TieredScratch s;
  follow(a, s, [&](u32 level) { grid_barrier(a.barrier, (level + 1) * gridDim.x); });
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_in_launch(const LabArguments a) {
  __shared__ TieredScratch s;
  Tally tally;
  tiered_level(a, in_size(a), s, tally);
  tally.add_to(a.counters);
}
