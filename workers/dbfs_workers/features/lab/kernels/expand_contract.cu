// Expand-contract (Merrill 2012, section 5.1): one launch a level, from vertex queue to vertex queue.
//
// A block drops duplicates among its tile of the queue, gathers the neighbours of the rest, and appends the neighbours
// that have no label yet; not in the paper, it may drop duplicates among these too. Neighbours never lie in memory: a level writes its vertices only. Reads 4 bytes a queue entry,
// 16 a list, 4 an edge and the status of each neighbour; writes 8 bytes a vertex found.
#include "features/lab/kernels/workspace.cuh"

using namespace dbfs;
using namespace dbfs::lab;

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_expand_contract(const LabArguments a) {
  __shared__ Workspace s;
  Tally tally;
  start_culling(s.cull);
  for_each_tile(a, in_size(a), [&](bool valid, u64 place, u64) {
    const u32 vertex = valid ? a.in_ids[place] : 0;
    tally.looked_at += valid;
    valid = passes_culling(a, valid, vertex, s.cull, tally);
    const List list = valid ? tally.expand(a, vertex) : no_list();
    gather(a, list, s.gather, [&](Items items) {
      drop_visited(a, items, tally);
      if (culls_neighbours(a)) drop_duplicates(a, items, s.cull, tally);
      label(a, items, tally);
      append(a, items, s.gather.block);
    });
  }, tiles(a));
  tally.add_to(a.counters);
}
