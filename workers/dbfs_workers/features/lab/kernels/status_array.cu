// Naive status array (Tödling 2019): one launch a level, one thread a vertex of the graph.
//
// Each thread looks at the label of its vertex and, in the frontier, walks the list alone. Reads 4 bytes a vertex of the
// graph in every level, 16 a list, 4 an edge and the label of each neighbour; writes 4 bytes a vertex found.
#include "features/lab/kernels/walk.cuh"
#include "features/lab/kernels/workspace.cuh"

using namespace dbfs;
using namespace dbfs::lab;

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_status_array(const LabArguments a) {
  Tally tally;
  for_each_tile(a, a.rows, [&](bool valid, u64 row, u64) {
    tally.looked_at += valid;
    if (valid && in_frontier(a, row)) {
      walk_alone(a, tally.expand(a, row),
                 [&](u32 neighbour, u32 parent) { label_unvisited(a, neighbour, parent, tally); });
    }
  });
  tally.add_to(a.counters);
}
