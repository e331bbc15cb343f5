// One level from vertex queue to vertex queue with exact claims: a neighbour's label is set by an atomic operation, so that
// one thread keeps it and no duplicate arises.
#pragma once
#include "lab/walk.cuh"
#include "lab/workspace.cuh"

namespace dbfs {
namespace lab {

// The queue is read past the first-level cache: in a launch of several levels, other blocks have written it since.
// All threads of the block call `keep` with the vertices that they claimed.
template <class Keep>
__device__ __forceinline__ void claimed_level(const LabArguments& a, u64 size, GatherScratch& s, Tally& tally, Keep keep) {
  for_each_tile(a, size, [&](bool valid, u64 place, u64) {
    tally.looked_at += valid;
    const List list = valid ? tally.expand(a, __ldcg(&a.in_ids[place])) : no_list();
    gather(a, list, s, [&](Batch batch) {
      claim_unvisited(a, batch, tally);
      keep(batch);
    });
  });
}

// A prefix sum over the block and one atomic operation give the vertices that are kept their places.
__device__ __forceinline__ void claimed_level(const LabArguments& a, u64 size, GatherScratch& s, Tally& tally) {
  claimed_level(a, size, s, tally, [&](const Batch& batch) { append(a, batch, s.block); });
}

}  // namespace lab
}  // namespace dbfs
