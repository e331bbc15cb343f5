// Classes by degree (Tödling 2019): a queue and a launch for each class of vertices. A thread, a warp, a block or the whole
// grid walks a list, whichever the list fills.
//
// Neighbours are claimed by atomic operations. Sorted while exploring, each lands in the queue of its class, which a launch
// before the first level wrote: bytes as for the atomic queue, and one for the class of each vertex found. Without classes
// they land in one queue, which a pass behind the level sorts: 24 bytes a vertex found more.
#include "features/lab/kernels/degree_class.cuh"

using namespace dbfs;
using namespace dbfs::lab;

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_write_classes(const LabArguments a) {
  for_each_tile(a, a.rows, [&](bool valid, u64 row, u64) {
    if (valid) a.flags[row] = class_of(a, list_of(a, row).size());
  });
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_by_threads(const LabArguments a) {
  __shared__ ClassScratch s;
  Tally tally;
  for_each_list(a, a.in_size, tally, [&](const List& list) {
    claim_alone(a, list, tally, [&](const auto& finds) { append_found(a, finds, s); });
  });
  tally.add_to(a.counters);
}

// Lane 0 of a warp holds the warp's list.
extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_by_warps(const LabArguments a) {
  __shared__ ClassScratch s;
  Tally tally;
  QueueTogether queue;
  const auto append = [&](const auto& finds) { append_found(a, finds, s); };
  for (u64 first = u64(blockIdx.x) * kWarps; first < a.in_size; first += u64(gridDim.x) * kWarps) {
    const bool valid = lane() == 0 && first + warp() < a.in_size;
    tally.looked_at += valid;
    const List list = valid ? tally.expand(a, a.in_ids[first + warp()]) : no_list();
    gather_by_warps<true>(a, list, [&](const Items& items) { queue.claim_together(a, items, tally, append); });
  }
  queue.flush(append);
  tally.add_to(a.counters);
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_sort_by_class(const LabArguments a) {
  __shared__ ClassScratch s;
  for_each_tile(a, a.counters[kQueued], [&](bool valid, u64 place, u64) {
    append_by_class(a, ItemsOf<1>{{valid ? a.in_ids[place] : 0}, {}, {}, u32(valid)}, s);
  });
}

// One of `parts` blocks walks its part of a list.
template <class Append>
__device__ __forceinline__ void walk_part(const LabArguments& a, u32 vertex, u32 part, u32 parts, QueueTogether& queue,
                                          Tally& tally, Append append) {
  const bool counts = part == 0 && threadIdx.x == 0;
  tally.looked_at += counts;
  const List list = counts ? tally.expand(a, vertex) : list_of(a, vertex);
  gather_part(a, list, part, parts, [&](const Items& items) { queue.claim_together(a, items, tally, append); });
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_by_blocks(const LabArguments a) {
  __shared__ ClassScratch s;
  Tally tally;
  QueueTogether queue;
  const auto append = [&](const auto& finds) { append_found(a, finds, s); };
  for (u64 place = blockIdx.x; place < a.in_size; place += gridDim.x) {
    walk_part(a, a.in_ids[place], 0, 1, queue, tally, append);
  }
  queue.flush(append);
  tally.add_to(a.counters);
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_by_grid(const LabArguments a) {
  __shared__ ClassScratch s;
  Tally tally;
  QueueTogether queue;
  const auto append = [&](const auto& finds) { append_found(a, finds, s); };
  for (u64 place = 0; place < a.in_size; ++place) {
    walk_part(a, a.in_ids[place], blockIdx.x, gridDim.x, queue, tally, append);
  }
  queue.flush(append);
  tally.add_to(a.counters);
}
