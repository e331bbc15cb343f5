// Prefix sums over the threads of a block, and the places of a queue that a block reserves (Merrill 2012).
//
// What a block writes keeps the order of its input: duplicates that lie close together stay so, and the block that takes
// them in the next level can drop them.
#pragma once
#include "features/lab/kernels/problem.cuh"

namespace dbfs {
namespace lab {

struct BlockScratch {
  u64 before[kWarps * kItems];  // sums of the warps below; of items, for each item
  u64 total;
};

// The sum of `value` over the lanes below; over all lanes in `total`.
__device__ __forceinline__ u64 warp_sums(u64 value, u64& total) {
  u64 sum = value;
  for (u32 step = 1; step < kLanes; step <<= 1) {
    const u64 other = __shfl_up_sync(kAll, sum, step);
    if (lane() >= step) sum += other;
  }
  total = __shfl_sync(kAll, sum, kLanes - 1);
  return sum - value;
}

// A sum that starts at 0.
struct FromZero {
  __device__ __forceinline__ u64 operator()(u64) const { return 0; }
};

// A sum that starts behind the output queue's entries, as blocks come: one atomic operation.
struct Behind {
  const LabArguments& a;

  __device__ __forceinline__ u64 operator()(u64 total) const {
    return __shfl_sync(kAll, total && lane() == 0 ? atomicAdd(a.counters + kQueued, total) : 0, 0);
  }
};

// A sum that starts behind the places of the tile before, whichever block has that tile: decoupled look-back (Merrill and
// Garland 2016). Each tile publishes its own sum, and then the sum of all tiles up to itself, as one word: the launch, so
// that no word of an earlier launch counts, what the sum is, and the sum. A tile waits for tiles that were taken before it.
struct InOrder {
  const LabArguments& a;
  u64 tile;

  static constexpr u32 kSumBits = 40;
  static constexpr u64 kOwn = 1, kUpToHere = 2;

  __device__ __forceinline__ void publish(u64 what, u64 sum) const {
    const u64 word = (u64(launch(a)) << 2 | what) << kSumBits | sum;
    if (lane() == 0) atomicExch(&a.tile_sums[tile], word);
  }

  __device__ __forceinline__ u64 operator()(u64 total) const {
    publish(tile ? kOwn : kUpToHere, total);
    const volatile u64* words = a.tile_sums;  // read again each time: __ldcg may be read once
    u64 before = 0;
    for (u64 end = tile; end; end -= end < kLanes ? end : kLanes) {
      const bool any = lane() < end;
      u64 word;
      do {
        word = any ? words[end - 1 - lane()] : u64(launch(a)) << 2 << kSumBits;
      } while (__any_sync(kAll, word >> kSumBits >> 2 != launch(a)));
      const u32 ends = __ballot_sync(kAll, any && (word >> kSumBits & kUpToHere));
      const u32 last = ends ? __ffs(ends) - 1 : kLanes - 1;
      u64 sum;
      warp_sums(any && lane() <= last ? word & ((u64(1) << kSumBits) - 1) : 0, sum);
      before += sum;
      if (ends) break;
    }
    if (tile) publish(kUpToHere, before + total);
    if (lane() == 0 && total) atomicAdd(a.counters + kQueued, total);
    return before;
  }
};

// Turn `count` sums, of a warp each or of a warp and an item, into sums of those before; warp 0 calls it. The first one
// starts where `start(total)` says.
template <class Start>
__device__ __forceinline__ void line_up(BlockScratch& s, u32 count, Start start) {
  u64 total = 0;
  for (u32 first = 0; first < count; first += kLanes) {
    const u32 at = first + lane();
    u64 chunk;
    const u64 below = warp_sums(at < count ? s.before[at] : 0, chunk);
    if (at < count) s.before[at] = total + below;
    total += chunk;
  }
  const u64 place = start(total);
  for (u32 at = lane(); at < count; at += kLanes) s.before[at] += place;
  if (lane() == 0) s.total = total;
}

// The sum of `value` over the threads below, starting where `start` says; over the block in `total`.
template <class Start = FromZero>
__device__ __forceinline__ u64 block_sums(u64 value, BlockScratch& s, u64& total, Start start = FromZero()) {
  u64 warp_total;
  const u64 below = warp_sums(value, warp_total);
  __syncthreads();
  if (lane() == 0) s.before[warp()] = warp_total;
  __syncthreads();
  if (warp() == 0) line_up(s, kWarps, start);
  __syncthreads();
  total = s.total;
  return s.before[warp()] + below;
}

// Write what has room to the output queue. The queue's counter says how many entries it would need.
template <u32 kSize>
__device__ __forceinline__ void write(const LabArguments& a, const ItemsOf<kSize>& items) {
#pragma unroll
  for (u32 item = 0; item < kSize; ++item) {
    if (!items.has(item) || u64(items.places[item]) >= a.out_capacity) continue;
    a.out_ids[items.places[item]] = items.ids[item];
    if (a.out_parents) a.out_parents[items.places[item]] = items.vertices[item];
  }
}

// Append the valid ids of all threads to the output queue, behind one another: the first items of all threads, then the
// second ones, in the order of the threads.
template <u32 kSize, class Start>
__device__ __forceinline__ void append(const LabArguments& a, ItemsOf<kSize> items, BlockScratch& s, Start start) {
  __syncthreads();
#pragma unroll
  for (u32 item = 0; item < kSize; ++item) {
    const u32 ballot = __ballot_sync(kAll, items.has(item));
    items.places[item] = __popc(ballot & ((1u << lane()) - 1));
    if (lane() == 0) s.before[item * kWarps + warp()] = __popc(ballot);
  }
  __syncthreads();
  if (warp() == 0) line_up(s, kSize * kWarps, start);
  __syncthreads();
#pragma unroll
  for (u32 item = 0; item < kSize; ++item) items.places[item] += s.before[item * kWarps + warp()];
  write(a, items);
}

template <u32 kSize>
__device__ __forceinline__ void append(const LabArguments& a, const ItemsOf<kSize>& items, BlockScratch& s) {
  append(a, items, s, Behind{a});
}

}  // namespace lab
}  // namespace dbfs
