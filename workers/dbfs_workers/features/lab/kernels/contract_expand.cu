// Contract-expand (Merrill 2012, section 5.2): one launch a level, from edge queue to edge queue.
//
// A block looks up the status of its tile of neighbours, drops duplicates, labels the rest, and appends all neighbours of
// these. Vertices never lie in memory: a level writes its edges only. Fewer launches and less waiting suit small levels.
// Reads 4 bytes a queue entry (8 with parents), the status of each, 16 a list and 4 an edge; writes 4 (8) bytes an edge.
#include "features/lab/kernels/workspace.cuh"

using namespace dbfs;
using namespace dbfs::lab;

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_contract_expand(const LabArguments a) {
  __shared__ Workspace s;
  Tally tally;
  start_culling(s.cull);
  for_each_items<1>(a, tally, [&](ItemsOf<1>& one, u64 tile) {
    contract(a, one, s.cull, tally);
    const List list = one.has(0) ? tally.expand(a, one.ids[0]) : no_list();
    with_places(a, tile, [&](auto start) { expand_lists(a, list, s.gather, start); });
  });
  tally.add_to(a.counters);
}
