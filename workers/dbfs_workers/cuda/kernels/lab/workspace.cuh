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

// Entries that a block takes at a time: one for each thread; fewer if the grid has a thread for each entry, so that many
// blocks share a short queue, whose lists may be long. A warp's at least.
__device__ __forceinline__ u64 tile_of(u64 size) {
  const u64 share = (size + gridDim.x - 1) / gridDim.x;
  return share < kLanes ? kLanes : share < kThreads ? share : kThreads;
}

// This thread's place in a tile. The entries of a tile that is shorter than the block are dealt to the warps in turn: a
// warp walks the long lists of its lanes one after another, so that they are not to lie all with the first warps.
__device__ __forceinline__ u64 place_in(u64 tile) {
  return tile < kThreads ? u64(lane()) * kWarps + warp() : u64(threadIdx.x);
}

// Call `work(valid, place)` for the entries of the input queue, one a thread. All threads of a block call it together.
template <class Work>
__device__ __forceinline__ void for_each_tile(u64 size, Work work) {
  const u64 tile = tile_of(size);
  for (u64 first = blockIdx.x * tile; first < size; first += gridDim.x * tile) {
    const u64 place = first + place_in(tile);
    work(place < first + tile && place < size, place);
  }
}

// An entry of the tile of the input queue that begins at `first` for each item of each thread; vertices without parents
// are their own.
template <u32 kSize>
__device__ __forceinline__ BatchOf<kSize> entries(const LabArguments& a, u64 first, u64 tile, u64 size) {
  const u64 end = first + tile < size ? first + tile : size;
  BatchOf<kSize> batch;
#pragma unroll
  for (u32 item = 0; item < kSize; ++item) {
    const u64 place = first + item * kThreads + place_in(tile);
    const bool valid = place < end;
    batch.valid |= u32(valid) << item;
    batch.ids[item] = valid ? a.in_ids[place] : 0;
    batch.vertices[item] = valid && a.in_parents ? a.in_parents[place] : batch.ids[item];
  }
  return batch;
}

// Call `work(batch)` for the entries of the input queue, kSize a thread. All threads of a block call it together.
template <u32 kSize, class Work>
__device__ __forceinline__ void for_each_batch(const LabArguments& a, Tally& tally, Work work) {
  const u64 size = in_size(a), tile = kSize == 1 ? tile_of(size) : u64(kThreads) * kSize;
  for (u64 first = blockIdx.x * tile; first < size; first += gridDim.x * tile) {
    BatchOf<kSize> batch = entries<kSize>(a, first, tile, size);
    tally.looked_at += __popc(batch.valid);
    work(batch);
  }
}

}  // namespace lab
}  // namespace dbfs
