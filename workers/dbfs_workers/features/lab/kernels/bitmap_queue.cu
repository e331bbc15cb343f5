// Queue of bits (Krajecki 2016, algorithm 3): one launch a level, a warp a word of the frontier's bitmap.
//
// A warp leaves an empty word at once. Each lane has the list of one bit, and one lane after another enlists the warp for
// its list. A visited bit is looked up through the read-only cache, which may miss what this launch set: an atomic or
// decides. The bits taken are cleared, so that the next level fills the word again. Reads 1 bit a vertex of the graph in
// every level, 16 bytes a list, 4 an edge and a word of bits for each neighbour; two atomic operations a vertex found.
#include "features/lab/kernels/walk.cuh"

using namespace dbfs;
using namespace dbfs::lab;

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_bitmap_queue(const LabArguments a) {
  u32* queue = const_cast<u32*>(a.in_ids);
  u32* visited = reinterpret_cast<u32*>(a.bitmask);
  Tally tally;
  for (u64 at = u64(blockIdx.x) * kWarps + warp(); at * kLanes < a.rows; at += u64(gridDim.x) * kWarps) {
    const u64 row = at * kLanes + lane();
    tally.looked_at += row < a.rows;
    // The shuffle keeps the clearing behind the reads of all lanes.
    const u32 word = __shfl_sync(kAll, queue[at], 0);
    if (!word) continue;
    if (lane() == 0) queue[at] = 0;
    const List list = word >> lane() & 1 ? tally.expand(a, row) : no_list();
    walk_by_virtual_warp(a, list, [&](u32 neighbour, u32 parent) {
      const u32 place = neighbour / kLanes, bit = 1u << neighbour % kLanes;
      if (__ldg(&visited[place]) & bit) {
        ++tally.bitmask_culled;
      } else if (atomicOr(&visited[place], bit) & bit) {
        ++tally.claim_culled;
      } else {
        set_label(a, neighbour, parent);
        atomicOr(&a.out_ids[place], bit);
        ++tally.labelled;
      }
    });
  }
  tally.add_to(a.counters);
}
