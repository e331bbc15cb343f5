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

// An entry of the input queue for each item of each thread, from `first` on; vertices without parents are their own.
template <u32 kSize>
__device__ __forceinline__ BatchOf<kSize> entries(const LabArguments& a, u64 first, u64 size) {
  BatchOf<kSize> batch;
#pragma unroll
  for (u32 item = 0; item < kSize; ++item) {
    const u64 place = first + item * kThreads + threadIdx.x;
    const bool valid = place < size;
    batch.valid |= u32(valid) << item;
    batch.ids[item] = valid ? a.in_ids[place] : 0;
    batch.vertices[item] = valid && a.in_parents ? a.in_parents[place] : batch.ids[item];
  }
  return batch;
}

// Call `work(batch)` for the entries of the input queue, kSize a thread. All threads of a block call it together.
template <u32 kSize, class Work>
__device__ __forceinline__ void for_each_batch(const LabArguments& a, Tally& tally, Work work) {
  const u64 size = in_size(a);
  for (u64 first = u64(blockIdx.x) * kThreads * kSize; first < size; first += u64(gridDim.x) * kThreads * kSize) {
    BatchOf<kSize> batch = entries<kSize>(a, first, size);
    tally.looked_at += __popc(batch.valid);
    work(batch);
  }
}

}  // namespace lab
}  // namespace dbfs
