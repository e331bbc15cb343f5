// Hierarchical synchronisation (Luo, Wong and Hwu 2010): small frontiers run many levels in one launch.
//
// Levels are those of the atomic queue. A frontier that one block holds is followed by one block, whose barrier ends a
// level; a larger one by a block for each multiprocessor, with a barrier of the grid; the largest take a launch a level,
// of atomic_queue.cu. A launch ends when the frontier leaves the sizes [least, most] of its kind, or after `levels`. Each
// level has a row of counters, and the two queues take turns.
#include "lab/claimed_level.cuh"

using namespace dbfs;
using namespace dbfs::lab;

namespace {

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
__device__ __forceinline__ void follow(const LabArguments& a, GatherScratch& s, Wait wait) {
  u64 size = a.in_size;
  for (u32 level = 0; level < a.levels && size >= a.least && size <= a.most; ++level) {
    LabArguments now = a;
    now.counters += u64(level) * kCounters;
    now.distance += level;
    if (level & 1) {
      now.in_ids = a.out_ids;
      now.out_ids = const_cast<u32*>(a.in_ids);
    }
    Tally tally;
    claimed_level(now, size, s, tally);
    tally.add_to(now.counters);
    wait(level);
    size = __ldcg(&now.counters[kQueued]);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_in_block(const LabArguments a) {
  __shared__ GatherScratch s;
  follow(a, s, [](u32) {
    __threadfence();
    __syncthreads();
  });
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_in_grid(const LabArguments a) {
  __shared__ GatherScratch s;
  follow(a, s, [&](u32 level) { grid_barrier(a.barrier, (level + 1) * gridDim.x); });
}
