// The two halves of an expansion alone and together (Merrill 2012, sections 4.1 to 4.3): experiments, of no strategy.
//
// Gathering reads the neighbours of a vertex queue and keeps nothing; lookup reads the status of an edge queue's entries and
// changes nothing; the fused kernel does both without an edge queue. What a kernel found goes into a counter, so that the
// compiler keeps the reads.
#include "features/lab/kernels/workspace.cuh"

using namespace dbfs;
using namespace dbfs::lab;

namespace {

// Count the vertices without a visited bit and without a label; the bitmask is read as in drop_visited.
template <u32 kSize>
__device__ __forceinline__ void look_up(const LabArguments& a, const ItemsOf<kSize>& items, Tally& tally) {
  u8 bits[kSize];
#pragma unroll
  for (u32 item = 0; item < kSize; ++item) bits[item] = items.has(item) ? __ldcg(&a.bitmask[items.ids[item] >> 3]) : 0;
  ItemsOf<kSize> open = items;
#pragma unroll
  for (u32 item = 0; item < kSize; ++item) {
    if (!items.has(item) || !(bits[item] >> (items.ids[item] & 7) & 1)) continue;
    ++tally.bitmask_culled;
    open.drop(item);
  }
  drop_labelled(a, open, tally);
  tally.labelled += __popc(open.valid);
}

template <class Visit>
__device__ __forceinline__ void gather_alone(const LabArguments& a, GatherScratch& s, Tally& tally, Visit visit) {
  for_each_tile(a, a.in_size, [&](bool valid, u64 place, u64) {
    tally.looked_at += valid;
    gather<false>(a, valid ? tally.expand(a, a.in_ids[place]) : no_list(), s, visit);
  });
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_gather_alone(const LabArguments a) {
  __shared__ GatherScratch s;
  Tally tally;
  u32 seen = 0;
  gather_alone(a, s, tally, [&](const Items& items) {
#pragma unroll
    for (u32 item = 0; item < kItems; ++item) seen ^= items.ids[item];
  });
  tally.labelled = seen == kAll;
  tally.add_to(a.counters);
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_look_up_alone(const LabArguments a) {
  Tally tally;
  for_each_items<kItems>(a, tally, [&](const Items& items, u64) { look_up(a, items, tally); });
  tally.add_to(a.counters);
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_gather_and_look_up(const LabArguments a) {
  __shared__ GatherScratch s;
  Tally tally;
  gather_alone(a, s, tally, [&](const Items& items) { look_up(a, items, tally); });
  tally.add_to(a.counters);
}
