// Warp-centric status array (Hong et al. 2011): one launch a level, a virtual warp of 4, 8, 16 or 32 lanes for as many
// vertices of the graph.
//
// The lanes look at one label each; then all of them walk the lists of those in the frontier together, one list after
// another. Lists of hubs no longer hold up one lane, and neighbours of a list are read side by side. Bytes as for the
// status array.
#include "features/lab/kernels/walk.cuh"
#include "features/lab/kernels/workspace.cuh"

using namespace dbfs;
using namespace dbfs::lab;

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_warp_centric(const LabArguments a) {
  Tally tally;
  for_each_tile(a, a.rows, [&](bool valid, u64 row, u64) {
    tally.looked_at += valid;
    const List list = valid && in_frontier(a, row) ? tally.expand(a, row) : no_list();
    walk_by_virtual_warp(a, list, [&](u32 neighbour, u32 parent) { label_unvisited(a, neighbour, parent, tally); });
  });
  tally.add_to(a.counters);
}
