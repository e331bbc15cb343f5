// Which neighbours go on (Merrill 2012, section 4.2): the lookup of a vertex's status, and the culling of duplicates that
// several threads of a block hold at the same time. Both err in one direction: a vertex may pass twice, but of the
// threads that hold an unvisited vertex at least one passes. With Status::kClaims, an atomic operation then lets one pass.
#pragma once
#include "features/lab/kernels/problem.cuh"

namespace dbfs {
namespace lab {

constexpr u32 kWarpSlots = 128;
constexpr u32 kHistorySlots = 1024;
constexpr u32 kEmptySlot = 0xffffffffu;

struct CullScratch {
  u32 by_warp[kWarps][kWarpSlots];
  u32 history[kHistorySlots];
};

// Drop the vertices whose bit is set, and set the bits of the others. A lookup costs one byte, where labels cost four. The
// updates are not atomic: one that is lost leaves a bit clear.
template <u32 kSize>
__device__ __forceinline__ void drop_marked(const LabArguments& a, BatchOf<kSize>& batch, Tally& tally) {
  u8 found[kSize];
#pragma unroll
  for (u32 item = 0; item < kSize; ++item) found[item] = batch.has(item) ? __ldcg(&a.bitmask[batch.ids[item] >> 3]) : 0;
#pragma unroll
  for (u32 item = 0; item < kSize; ++item) {
    if (!batch.has(item)) continue;
    const u8 bit = 1 << (batch.ids[item] & 7);
    if (found[item] & bit) {
      ++tally.bitmask_culled;
      batch.drop(item);
    } else {
      a.bitmask[batch.ids[item] >> 3] = found[item] | bit;
    }
  }
}

// Drop the vertices that were visited. Where the bitmask misses one, the label decides.
template <u32 kSize>
__device__ __forceinline__ void drop_visited(const LabArguments& a, BatchOf<kSize>& batch, Tally& tally) {
  if (Status(status(a)) != Status::kLabels) drop_marked(a, batch, tally);
  drop_labelled(a, batch, tally);
}

// Label the vertices that are left; with Status::kClaims, those that no other thread labels, and the others are dropped.
template <u32 kSize>
__device__ __forceinline__ void label(const LabArguments& a, BatchOf<kSize>& batch, Tally& tally) {
  if (Status(status(a)) == Status::kClaims) {
    label_claimed(a, batch, tally);
  } else {
    label_all(a, batch, tally);
  }
}

// Forget the history. All threads of the block call it, before the first culling.
__device__ __forceinline__ void start_culling(CullScratch& s) {
  for (u32 slot = threadIdx.x; slot < kHistorySlots; slot += kThreads) s.history[slot] = kEmptySlot;
  __syncthreads();
}

// Return whether another lane of the warp holds the same vertex and goes on with it. Lanes write their vertices into a
// hash table; of those that find their own vertex, the one that writes its number last goes on. Lanes write one slot at
// once on purpose: exchanges instead of stores say so to racecheck.
__device__ __forceinline__ bool culled_by_warp(bool valid, u32 vertex, u32* slots) {
  volatile u32* slot = &slots[vertex % kWarpSlots];
  if (valid) atomicExch(&slots[vertex % kWarpSlots], vertex);
  __syncwarp();
  const bool same = valid && *slot == vertex;
  __syncwarp();
  if (same) atomicExch(&slots[vertex % kWarpSlots], lane());
  __syncwarp();
  const bool dropped = same && *slot != lane();
  __syncwarp();
  return dropped;
}

// Return whether a thread of the block held the vertex not long ago. The table forgets: a slot holds its last vertex. One
// exchange reads and writes a slot, so that of threads that hold a vertex at once only one sees another vertex there.
__device__ __forceinline__ bool culled_by_history(bool valid, u32 vertex, u32* history) {
  return valid && atomicExch(&history[vertex % kHistorySlots], vertex) == vertex;
}

// Return whether the thread goes on with its vertex, after the culling that the policy says. All threads call it.
__device__ __forceinline__ bool passes_culling(const LabArguments& a, bool valid, u32 vertex, CullScratch& s,
                                               Tally& tally) {
  if (culling(a) & u32(Culling::kWarp)) {
    if (culled_by_warp(valid, vertex, s.by_warp[warp()])) {
      ++tally.warp_culled;
      valid = false;
    }
  }
  if (culling(a) & u32(Culling::kHistory)) {
    if (culled_by_history(valid, vertex, s.history)) {
      ++tally.history_culled;
      valid = false;
    }
  }
  return valid;
}

// Drop the duplicates of a batch. All threads call it.
template <u32 kSize>
__device__ __forceinline__ void drop_duplicates(const LabArguments& a, BatchOf<kSize>& batch, CullScratch& s, Tally& tally) {
#pragma unroll
  for (u32 item = 0; item < kSize; ++item) {
    if (!passes_culling(a, batch.has(item), batch.ids[item], s, tally)) batch.drop(item);
  }
}

// Contract a batch of the edge queue: drop what was visited and what is a duplicate, and label the rest. All threads call
// it.
template <u32 kSize>
__device__ __forceinline__ void contract(const LabArguments& a, BatchOf<kSize>& batch, CullScratch& s, Tally& tally) {
  drop_visited(a, batch, tally);
  drop_duplicates(a, batch, s, tally);
  label(a, batch, tally);
}

}  // namespace lab
}  // namespace dbfs
