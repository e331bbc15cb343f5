// Main loop on the device (Tödling 2019): a kernel launches each level's kernel, and itself behind that.
//
// Kernels can't wait for those that they launch any more, as hers did. So the loop is a chain: a block, of which one thread
// acts, launches the level, and then itself into the stream for tails, which begins when all launched before has ended. The
// level is that of the atomic queue. Each level has a row of counters, and the two queues take turns. The chain ends with an
// empty frontier, after `levels`, or where the device takes no further launch; the host then goes on from there.
#include "lab/claimed_level.cuh"
#include "lab/launch.cuh"

using namespace dbfs;
using namespace dbfs::lab;

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
  DBFS_LAUNCH(dbfs_lab_device_level, blocks_for(a, size, kLanes), cudaStreamFireAndForget, level);
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
