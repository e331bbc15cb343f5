// The shared memory of a block that gathers and culls, and the loop over the tiles of an input queue.
#pragma once
#include "features/lab/kernels/cull.cuh"
#include "features/lab/kernels/gather.cuh"

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

// Return how often blocks have taken tiles before this block does now. All threads of a block call it.
static __device__ __forceinline__ u64 count_take(const LabArguments& a) {
  __shared__ u64 taken;
  __syncthreads();
  if (threadIdx.x == 0) taken = atomicAdd(a.counters + kTiles, u64(1));
  __syncthreads();
  return taken;
}

// Call `work(number)` for each tile that falls to this block, in ascending order (Merrill 2012, section 4.1). A duplicate
// often lies in a neighbouring tile. So a share is one range of tiles, and a block steals runs: it then sees the duplicate
// after the status of the first is written. With a block a tile, blocks begin in the order of their tiles; blocks that are
// too few take further tiles. All threads of a block call it together.
template <class Work>
__device__ __forceinline__ void for_each_number(const LabArguments& a, u64 count, Tiles how, Work work) {
  if (how == Tiles::kShare) {
    const u64 end = count * (blockIdx.x + 1) / gridDim.x;
    for (u64 number = count * blockIdx.x / gridDim.x; number < end; ++number) work(number);
  } else if (how == Tiles::kOversubscribe || count == 1) {
    for (u64 number = blockIdx.x; number < count; number += gridDim.x) work(number);
  } else {
    // In each round the blocks take half of the tiles that are left, and in the last ones a tile each. Tiles in order
    // wait for the tiles before them, so no block may hold several.
    const u64 blocks = gridDim.x;
    u64 rounds = 0;
    while (how == Tiles::kSteal && count >> (rounds + 1) >= blocks) ++rounds;
    for (u64 number = 0; number < count;) {
      const u64 take = count_take(a), round = take / blocks < rounds ? take / blocks : rounds, at = take - round * blocks;
      const u64 left = count >> round, taken = round < rounds ? left - (left >> 1) : blocks;
      const u64 end = count - left + taken * (at + 1) / blocks;
      for (number = count - left + taken * at / blocks; number < end && number < count; ++number) work(number);
    }
  }
}

// Call `work(valid, place, number)` for the entries of the input queue, one a thread, and the number of their tile. The
// entries of a small tile lie apart, so that each warp has its part of the lists. Only Merrill's strategies take tiles by the
// policy.
template <class Work>
__device__ __forceinline__ void for_each_tile(const LabArguments& a, u64 size, Work work,
                                              Tiles how = Tiles::kOversubscribe) {
  const u64 tile = tile_of(size);
  for_each_number(a, (size + tile - 1) / tile, how, [&](u64 number) {
    const u64 first = number * tile, apart = kThreads / tile, place = first + threadIdx.x / apart;
    work(threadIdx.x % apart == 0 && place < first + tile && place < size, place, number);
  });
}

// Call `work(items, number)` for the entries of the input queue, kSize a thread, and the number of their tile. Vertices
// without parents are their own.
template <u32 kSize, class Work>
__device__ __forceinline__ void for_each_items(const LabArguments& a, Tally& tally, Work work) {
  const u64 size = in_size(a), tile = u64(kThreads) * kSize;
  for_each_number(a, (size + tile - 1) / tile, tiles(a), [&](u64 number) {
    ItemsOf<kSize> items;
#pragma unroll
    for (u32 item = 0; item < kSize; ++item) {
      const u64 place = number * tile + item * kThreads + threadIdx.x;
      const bool valid = place < size;
      items.valid |= u32(valid) << item;
      items.ids[item] = valid ? a.in_ids[place] : 0;
      items.vertices[item] = valid && a.in_parents ? a.in_parents[place] : items.ids[item];
    }
    tally.looked_at += __popc(items.valid);
    work(items, number);
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
