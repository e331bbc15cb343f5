// A thread's queue in registers (Tödling 2019, section 4): vertices that it claimed, until one prefix sum and one atomic
// operation of its block give them places.
#pragma once
#include "lab/walk.cuh"
#include "lab/workspace.cuh"

namespace dbfs {
namespace lab {

constexpr u32 kFinds = 8;  // vertices that a thread keeps; the paper prints no number

using Finds = BatchOf<kFinds>;

struct RegisterQueue {
  Finds finds;  // the first places, without a gap

  __device__ __forceinline__ bool full() const { return __popc(finds.valid) + kItems > kFinds; }

  // Claim vertices. The compiler knows all indexes, so that no find goes to local memory.
  __device__ __forceinline__ void claim(const LabArguments& a, Batch batch, Tally& tally) {
    claim_unvisited(a, batch, tally);
#pragma unroll
    for (u32 item = 0; item < kItems; ++item) {
      if (!batch.has(item)) continue;
      const u32 size = __popc(finds.valid);
#pragma unroll
      for (u32 place = 0; place < kFinds; ++place) finds.ids[place] = place == size ? batch.ids[item] : finds.ids[place];
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
  __device__ __forceinline__ void claim_together(const LabArguments& a, const Batch& batch, Tally& tally, Append append) {
    claim(a, batch, tally);
    if (__syncthreads_or(full())) flush(append);
  }
};

// Each thread walks its list alone, and claims the neighbours. The block appends once, and earlier where a queue is full.
template <class Append>
__device__ __forceinline__ void claim_alone(const LabArguments& a, List list, Tally& tally, Append append) {
  RegisterQueue queue;
  do {
    while (list.size() > 0 && !queue.full()) queue.claim(a, take_some(a, list), tally);
    queue.flush(append);
  } while (__syncthreads_or(list.size() > 0));
}

// Append the finds of all threads to the output queue, those of a thread behind one another.
__device__ __forceinline__ void append_finds(const LabArguments& a, const Finds& finds, BlockScratch& s) {
  u64 total;
  const u64 first = block_sums(__popc(finds.valid), s, total, Behind{a});
#pragma unroll
  for (u32 place = 0; place < kFinds; ++place) {
    if (finds.has(place) && first + place < a.out_capacity) a.out_ids[first + place] = finds.ids[place];
  }
}

}  // namespace lab
}  // namespace dbfs
