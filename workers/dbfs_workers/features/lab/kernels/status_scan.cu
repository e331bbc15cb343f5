// Queue from a status scan (Liu and Huang 2015): two launches a level.
//
// The first looks at the labels of all vertices of the graph, and makes a queue of the frontier, by a prefix sum and one
// atomic operation a block; the second gathers the neighbours of the queue's vertices and labels them, without appending
// anything. The queue is in the order of the vertices within a block, and has no duplicates. Reads 4 bytes a vertex of the
// graph in every level; else as expand-contract, without its appends.
#include "features/lab/kernels/walk.cuh"
#include "features/lab/kernels/workspace.cuh"

using namespace dbfs;
using namespace dbfs::lab;

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_scan_status(const LabArguments a) {
  __shared__ BlockScratch s;
  Tally tally;
  for_each_tile(a, a.rows, [&](bool valid, u64 row, u64) {
    tally.looked_at += valid;
    append(a, ItemsOf<1>{{u32(row)}, {u32(row)}, {}, u32(valid && in_frontier(a, row))}, s);
  });
  tally.add_to(a.counters);
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_label_neighbours(const LabArguments a) {
  __shared__ GatherScratch s;
  Tally tally;
  for_each_tile(a, in_size(a), [&](bool valid, u64 place, u64) {
    tally.looked_at += valid;
    const List list = valid ? tally.expand(a, a.in_ids[place]) : no_list();
    gather(a, list, s, [&](Items items) {
      drop_labelled(a, items, tally);
      label_all(a, items, tally);
    });
  });
  tally.add_to(a.counters);
}
