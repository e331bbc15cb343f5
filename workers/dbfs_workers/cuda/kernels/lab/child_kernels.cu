// Child kernels for large vertices (Tödling 2019): one launch a level, from vertex queue to vertex queue. The thread that
// holds a long list launches a grid for it; the block gathers the others. A device has room for 2,048 launches that wait,
// so the block also gathers the lists above `most_children`, and those whose launch the device refuses.
//
// Claims and queues are those of the atomic queue; parent and children append to one queue.
#include "lab/launch.cuh"
#include "lab/walk.cuh"
#include "lab/workspace.cuh"

using namespace dbfs;
using namespace dbfs::lab;

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_large_list(const LabArguments a, u32 vertex) {
  __shared__ BlockScratch s;
  Tally tally;
  gather_part(a, list_of(a, vertex), blockIdx.x, gridDim.x, [&](Batch batch) {
    claim_unvisited(a, batch, tally);
    append(a, batch, s);
  });
  tally.add_to(a.counters);
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_child_kernels(const LabArguments a) {
  __shared__ GatherScratch s;
  Tally tally;
  for_each_tile(a, in_size(a), [&](bool valid, u64 place, u64) {
    tally.looked_at += valid;
    List list = valid ? tally.expand(a, a.in_ids[place]) : no_list();
    if (list.size() >= a.grid_degree && atomicAdd(&a.counters[kLongLists], u64(1)) < a.most_children) {
      DBFS_LAUNCH(dbfs_lab_large_list, blocks_for(a, list.size(), kThreads * kItems), cudaStreamFireAndForget, a,
                  list.vertex);
      if (cudaGetLastError() == cudaSuccess) list = no_list();
    }
    gather(a, list, s, [&](Batch batch) {
      claim_unvisited(a, batch, tally);
      append(a, batch, s.block);
    });
  });
  tally.add_to(a.counters);
}
