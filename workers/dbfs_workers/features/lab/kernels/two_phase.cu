// Two-phase (Merrill 2012, section 5.3): two launches a level. Expansion takes the vertex queue to an edge queue;
// contraction takes that to the next vertex queue.
//
// Each phase keeps all threads busy with one kind of work, which suits large levels. Expansion reads 20 bytes a vertex and
// 4 an edge, and writes 4 an edge (8 with parents); contraction reads these and the status of each, and writes 8 a vertex.
#include "features/lab/kernels/workspace.cuh"

using namespace dbfs;
using namespace dbfs::lab;

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_expand(const LabArguments a) {
  __shared__ GatherScratch s;
  Tally tally;
  for_each_tile(a, in_size(a), [&](bool valid, u64 place, u64 tile) {
    tally.looked_at += valid;
    const List list = valid ? tally.expand(a, a.in_ids[place]) : no_list();
    with_places(a, tile, [&](auto start) { expand_lists(a, list, s, start); });
  }, tiles(a));
  tally.add_to(a.counters);
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_contract(const LabArguments a) {
  __shared__ CullScratch s;
  __shared__ BlockScratch block;
  Tally tally;
  start_culling(s);
  for_each_items<kItems>(a, tally, [&](Items& items, u64 tile) {
    contract(a, items, s, tally);
    with_places(a, tile, [&](auto start) { append(a, items, block, start); });
  });
  tally.add_to(a.counters);
}
