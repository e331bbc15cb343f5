// One level from vertex queue to vertex queue with exact claims: a neighbour's label is set by an atomic operation, so that
// one thread keeps it and no duplicate arises.
#pragma once
#include "features/lab/kernels/register_queue.cuh"

namespace dbfs {
namespace lab {

// Call `work(list)` for the lists of the input queue's vertices, one a thread. All threads of a block call it together.
// The queue is read past the first-level cache: in a launch of several levels, other blocks have written it since.
template <class Work>
__device__ __forceinline__ void for_each_list(const LabArguments& a, u64 size, Tally& tally, Work work) {
  for_each_tile(a, size, [&](bool valid, u64 place, u64) {
    tally.looked_at += valid;
    work(valid ? tally.expand(a, __ldcg(&a.in_ids[place])) : no_list());
  });
}

// Claim the neighbours of the block's lists, as the policy gathers them, and append those that were claimed.
__device__ __forceinline__ void claim_neighbours(const LabArguments& a, const List& list, GatherScratch& s, Tally& tally) {
  const auto append = [&](const auto& finds) { append_finds(a, finds, s.block); };
  if (Gathering(gathering(a)) == Gathering::kSerial) {
    claim_alone(a, list, tally, append);
    return;
  }
  QueueTogether queue;
  gather(a, list, s, [&](const Items& items) { queue.claim_together(a, items, tally, append); });
  queue.flush(append);
}

__device__ __forceinline__ void claimed_level(const LabArguments& a, u64 size, GatherScratch& s, Tally& tally) {
  for_each_list(a, size, tally, [&](const List& list) { claim_neighbours(a, list, s, tally); });
}

}  // namespace lab
}  // namespace dbfs
