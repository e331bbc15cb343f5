// One level from vertex queue to vertex queue with exact claims: a neighbour's label is set by an atomic operation, so that
// one thread appends it and no duplicate arises. A prefix sum over the block and one atomic operation give the appended
// vertices their places.
#pragma once
#include "lab/walk.cuh"
#include "lab/workspace.cuh"

namespace dbfs {
namespace lab {

// The queue is read past the first-level cache: in a launch of several levels, other blocks have written it since.
__device__ __forceinline__ void claimed_level(const LabArguments& a, u64 size, GatherScratch& s, Tally& tally) {
  for_each_tile(a, size, [&](bool valid, u64 place, u64) {
    tally.looked_at += valid;
    const List list = valid ? tally.expand(a, __ldcg(&a.in_ids[place])) : no_list();
    gather(a, list, s, [&](Batch batch) {
      claim_unvisited(a, batch, tally);
      append(a, batch, s.block);
    });
  });
}

}  // namespace lab
}  // namespace dbfs
