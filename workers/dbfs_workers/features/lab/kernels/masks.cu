// Masks (Harish and Narayanan 2007): two launches a level, one thread a vertex of the graph.
//
// The first walks the lists of vertices whose frontier byte is set, and marks what it labels in a second mask; the second
// makes that the next frontier. Two masks keep a vertex found in this level out of this level. Reads a byte a vertex of
// the graph in each launch, 16 a list, 4 an edge and the label of each neighbour; writes 6 bytes a vertex found.
#include "features/lab/kernels/walk.cuh"
#include "features/lab/kernels/workspace.cuh"

using namespace dbfs;
using namespace dbfs::lab;

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_mask_expand(const LabArguments a) {
  u8* found = a.flags + a.rows;
  Tally tally;
  for_each_tile(a, a.rows, [&](bool valid, u64 row, u64) {
    tally.looked_at += valid;
    if (valid && a.flags[row]) {
      a.flags[row] = 0;
      walk_alone(a, tally.expand(a, row), [&](u32 neighbour, u32 parent) {
        if (label_unvisited(a, neighbour, parent, tally)) found[neighbour] = 1;
      });
    }
  });
  tally.add_to(a.counters);
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_mask_update(const LabArguments a) {
  u8* found = a.flags + a.rows;
  Tally tally;
  for_each_tile(a, a.rows, [&](bool valid, u64 row, u64) {
    tally.looked_at += valid;
    if (valid && found[row]) {
      found[row] = 0;
      a.flags[row] = 1;
    }
  });
  tally.add_to(a.counters);
}
