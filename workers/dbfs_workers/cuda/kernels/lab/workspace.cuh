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

// Entries of a tile: one for each thread; fewer if the grid has a thread for each entry, so that many blocks share a short
// queue, whose lists may be long. A warp's at least.
__device__ __forceinline__ u64 tile_of(u64 size) {
  const u64 share = (size + gridDim.x - 1) / gridDim.x;
  return share < kLanes ? kLanes : share < kThreads ? share : kThreads;
}

// The number of the next tile that no block has taken. All threads of a block call it.
static __device__ __forceinline__ u64 take_tile(const LabArguments& a) {
  __shared__ u64 taken;
  __syncthreads();
  if (threadIdx.x == 0) taken = atomicAdd(a.counters + kTiles, u64(1));
  __syncthreads();
  return taken;
}

// Call `work(number)` for each tile (Merrill 2012, section 4.1): those that fall to this block if tiles are shared evenly,
// else the next one that no block has taken. All threads of a block call it together.
template <class Work>
__device__ __forceinline__ void for_each_number(const LabArguments& a, u64 count, Work work) {
  if (tiles(a) == Tiles::kShare || count == 1) {
    for (u64 number = blockIdx.x; number < count; number += gridDim.x) work(number);
    return;
  }
  for (u64 number = take_tile(a); number < count; number = take_tile(a)) work(number);
}

// Call `work(valid, place, number)` for the entries of the input queue, one a thread, and the number of their tile.
template <class Work>
__device__ __forceinline__ void for_each_tile(const LabArguments& a, u64 size, Work work) {
  const u64 tile = tile_of(size);
  for_each_number(a, (size + tile - 1) / tile, [&](u64 number) {
    const u64 first = number * tile, place = first + threadIdx.x;
    work(place < first + tile && place < size, place, number);
  });
}

// Call `work(batch, number)` for the entries of the input queue, kSize a thread, and the number of their tile. Vertices
// without parents are their own.
template <u32 kSize, class Work>
__device__ __forceinline__ void for_each_batch(const LabArguments& a, Tally& tally, Work work) {
  const u64 size = in_size(a), tile = u64(kThreads) * kSize;
  for_each_number(a, (size + tile - 1) / tile, [&](u64 number) {
    BatchOf<kSize> batch;
#pragma unroll
    for (u32 item = 0; item < kSize; ++item) {
      const u64 place = number * tile + item * kThreads + threadIdx.x;
      const bool valid = place < size;
      batch.valid |= u32(valid) << item;
      batch.ids[item] = valid ? a.in_ids[place] : 0;
      batch.vertices[item] = valid && a.in_parents ? a.in_parents[place] : batch.ids[item];
    }
    tally.looked_at += __popc(batch.valid);
    work(batch, number);
  });
}

// Have `work(start)` reserve places of the output queue for a tile, as the policy says.
template <class Work>
__device__ __forceinline__ void with_places(const LabArguments& a, u64 tile, Work work) {
  if (tiles(a) == Tiles::kOrder) {
    work(InOrder{a, tile});
  } else {
    work(Behind{a});
  }
}

}  // namespace lab
}  // namespace dbfs
