// A thread's queue in registers (Tödling 2019, section 4): vertices that it claimed, until one prefix sum and one atomic
// operation of its block give them places.
#pragma once
#include "features/lab/kernels/walk.cuh"
#include "features/lab/kernels/workspace.cuh"

namespace dbfs {
namespace lab {

// Vertices that a thread keeps; the paper prints no number. With more of them fewer blocks fit a multiprocessor: where
// threads share lists, and none finds many vertices, 8 were slower than 4 on audikw1, by 1.3 times on an H200.
constexpr u32 kFindsAlone = 8, kFindsTogether = 2 * kItems;

template <u32 kFinds>
struct RegisterQueue {
  ItemsOf<kFinds> finds;  // the first places, without a gap

  __device__ __forceinline__ bool full() const { return __popc(finds.valid) + kItems > kFinds; }

  // Claim vertices. The compiler knows all indexes, so that no find goes to local memory.
  __device__ __forceinline__ void claim(const LabArguments& a, Items items, Tally& tally) {
    claim_unvisited(a, items, tally);
#pragma unroll
    for (u32 item = 0; item < kItems; ++item) {
      if (!items.has(item)) continue;
      const u32 size = __popc(finds.valid);
#pragma unroll
      for (u32 place = 0; place < kFinds; ++place) finds.ids[place] = place == size ? items.ids[item] : finds.ids[place];
      finds.valid = finds.valid << 1 | 1;
    }
  }

  // All threads of the block call it.
  template <class Append>
  __device__ __forceinline__ void flush(Append append) {
    append(finds);
    finds.valid = 0;
  }

  // Claim vertices of a round of gathering. All threads of the block call it.
  template <class Append>
  __device__ __forceinline__ void claim_together(const LabArguments& a, const Items& items, Tally& tally, Append append) {
    claim(a, items, tally);
    if (__syncthreads_or(full())) flush(append);
  }
};

using QueueTogether = RegisterQueue<kFindsTogether>;

// Each thread walks its list alone, and claims the neighbours. The block appends once, and earlier where a queue is full.
template <class Append>
__device__ __forceinline__ void claim_alone(const LabArguments& a, List list, Tally& tally, Append append) {
  RegisterQueue<kFindsAlone> queue;
  do {
    while (list.size() > 0 && !queue.full()) queue.claim(a, take_some(a, list), tally);
    queue.flush(append);
  } while (__syncthreads_or(list.size() > 0));
}

// Append the finds of all threads to the output queue, those of a thread behind one another.
template <u32 kFinds>
__device__ __forceinline__ void append_finds(const LabArguments& a, const ItemsOf<kFinds>& finds, BlockScratch& s) {
  u64 total;
  const u64 first = block_sums(__popc(finds.valid), s, total, Behind{a});
#pragma unroll
  for (u32 place = 0; place < kFinds; ++place) {
    if (finds.has(place) && first + place < a.out_capacity) a.out_ids[first + place] = finds.ids[place];
  }
}

}  // namespace lab
}  // namespace dbfs
