// The shared memory of a block that gathers and culls, and the loop over the tiles of an input queue.
#pragma once
#include "lab/cull.cuh"
#include "lab/gather.cuh"

namespace dbfs {
namespace lab {

struct Workspace {
  GatherScratch gather;
  CullScratch cull;
};

// Call `work(valid, place)` for the entries of the input queue, one a thread. All threads of a block call it together.
template <class Work>
__device__ __forceinline__ void for_each_tile(u64 size, Work work) {
  for (u64 first = u64(blockIdx.x) * kThreads; first < size; first += u64(gridDim.x) * kThreads) {
    const u64 place = first + threadIdx.x;
    work(place < size, place);
  }
}

}  // namespace lab
}  // namespace dbfs
