// Queue with exact claims (Tödling 2019): one launch a level, from vertex queue to vertex queue.
//
// Bytes as for expand-contract, and an atomic operation for each vertex found. Finds lie in registers until the block has
// places for them.
#include "features/lab/kernels/claimed_level.cuh"

using namespace dbfs;
using namespace dbfs::lab;

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_atomic_queue(const LabArguments a) {
  __shared__ GatherScratch s;
  Tally tally;
  claimed_level(a, in_size(a), s, tally);
  tally.add_to(a.counters);
}
