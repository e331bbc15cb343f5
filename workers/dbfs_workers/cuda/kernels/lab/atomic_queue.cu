// Queue with exact claims (Tödling 2019): one launch a level, from vertex queue to vertex queue.
//
// A neighbour's label is set by an atomic operation, so that one thread appends it and no duplicate arises. A prefix sum
// over the block and one atomic operation give the appended vertices their places. Bytes as for expand-contract, and an
// atomic operation for each vertex found.
#include "lab/walk.cuh"
#include "lab/workspace.cuh"

using namespace dbfs;
using namespace dbfs::lab;

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_atomic_queue(const LabArguments a) {
  __shared__ GatherScratch s;
  Tally tally;
  for_each_tile(in_size(a), [&](bool valid, u64 place) {
    tally.looked_at += valid;
    const List list = valid ? tally.expand(a, a.in_ids[place]) : no_list();
    gather(a, list, s, [&](Batch batch) {
      claim_unvisited(a, batch, tally);
      append(a, batch, s.block);
    });
  });
  tally.add_to(a.counters);
}
