// Launches by kernels (Tödling 2019): child kernels for large vertices, and the main loop on the device.
//
// Child kernels: one launch a level, from vertex queue to vertex queue. The thread that holds a long list launches a grid
// for it; the block gathers the others. A device has room for 2,048 launches that wait, so the block also gathers the
// lists above `most_children`, and those whose launch the device refuses. Claims and queues are those of the atomic
// queue; parent and children append to one queue.
//
// The main loop: a kernel launches each level's kernel, and itself behind that. Kernels can't wait for those that they
// launch any more, as hers did. So the loop is a chain: a block, of which one thread acts, launches the level, and then
// itself into the stream for tails, which begins when all launched before has ended. The level is that of the atomic
// queue, or with `most_children` that of child kernels. Each level has a row of counters, and the two queues take turns.
// The chain ends with an empty frontier, after `levels`, or where the device takes no further launch; the host then goes
// on from there.
#include "features/lab/kernels/claimed_level.cuh"
#include "features/lab/kernels/launch.cuh"

using namespace dbfs;
using namespace dbfs::lab;

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_large_list(const LabArguments a, u32 vertex) {
  __shared__ BlockScratch s;
  Tally tally;
  QueueTogether queue;
  const auto append = [&](const auto& finds) { append_finds(a, finds, s); };
  gather_part(a, list_of(a, vertex), blockIdx.x, gridDim.x,
              [&](const Items& items) { queue.claim_together(a, items, tally, append); });
  queue.flush(append);
  tally.add_to(a.counters);
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_child_kernels(const LabArguments a) {
  __shared__ GatherScratch s;
  Tally tally;
  for_each_list(a, in_size(a), tally, [&](List list) {
    if (list.size() >= a.grid_degree && atomicAdd(&a.counters[kLongLists], u64(1)) < a.most_children) {
      DBFS_LAUNCH(dbfs_lab_large_list, blocks_for(a, list.size(), kThreads * kItems), cudaStreamFireAndForget, a,
                  list.vertex);
      if (cudaGetLastError() == cudaSuccess) list = no_list();
    }
    claim_neighbours(a, list, s, tally);
  });
  tally.add_to(a.counters);
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_device_level(const LabArguments a) {
  __shared__ GatherScratch s;
  Tally tally;
  claimed_level(a, a.in_size, s, tally);
  tally.add_to(a.counters);
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_device_loop(const LabArguments a) {
  const u64 size = in_size(a);
  if (threadIdx.x || !size || !a.levels) return;
  LabArguments level = a;
  level.in_size = size;
  level.before = nullptr;
  if (a.most_children) {
    DBFS_LAUNCH(dbfs_lab_child_kernels, blocks_for(a, size, kLanes), cudaStreamFireAndForget, level);
  } else {
    DBFS_LAUNCH(dbfs_lab_device_level, blocks_for(a, size, kLanes), cudaStreamFireAndForget, level);
  }
  if (cudaGetLastError() != cudaSuccess) return;
  LabArguments next = a;
  next.in_ids = a.out_ids;
  next.in_size = a.out_capacity;
  next.out_ids = const_cast<u32*>(a.in_ids);
  next.before = a.counters;
  next.counters = a.counters + kCounters;
  ++next.distance;
  --next.levels;
  DBFS_LAUNCH(dbfs_lab_device_loop, 1, cudaStreamTailLaunch, next);
  // Without this launch the chain ends here. The error is read so that it ends with the grid.
  (void)cudaGetLastError();
}
