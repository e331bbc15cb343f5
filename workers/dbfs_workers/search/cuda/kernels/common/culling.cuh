// Best-effort culling of neighbours (Merrill 2012, section 4.2): a bitmask of visited vertices, and the duplicates that
// threads of a warp or a block hold. Both err in one direction: a vertex may pass twice, but of the threads that hold an
// unvisited vertex at least one passes. No operation on global memory is atomic.
#pragma once
#include "search/cuda/kernels/common/scalars.cuh"

namespace dbfs {

constexpr u32 kWarpSlots = 128;
constexpr u32 kHistorySlots = 1024;
constexpr u32 kEmptySlot = 0xffffffffu;

// The shared memory of a block of at most kWarps warps.
template <u32 kWarps>
struct CullTables {
  u32 by_warp[kWarps][kWarpSlots];
  u32 history[kHistorySlots];
};

// The byte of the bitmask that has a vertex's bit. A lookup costs one byte, where labels cost four.
__device__ __forceinline__ u8 marks_beside(const u8* bitmask, u32 vertex) { return __ldcg(&bitmask[vertex >> 3]); }

// Return whether a vertex is marked in the byte that was found, and mark it if not. Of bytes that are written at once one
// stays, so a mark of the same launch may be lost; those of earlier launches are in all of them.
__device__ __forceinline__ bool marked_or_mark(u8* bitmask, u32 vertex, u8 found) {
  const u8 bit = 1 << (vertex & 7);
  if (found & bit) return true;
  bitmask[vertex >> 3] = found | bit;
  return false;
}

// Forget the history. All threads of the block call it, before the first culling.
template <u32 kWarps>
__device__ __forceinline__ void start_culling(CullTables<kWarps>& s) {
  for (u32 slot = threadIdx.x; slot < kHistorySlots; slot += blockDim.x) s.history[slot] = kEmptySlot;
  __syncthreads();
}

// Return whether another lane of the warp holds the same vertex and goes on with it. Lanes write their vertices into a
// hash table; of those that find their own vertex, the one that writes its number last goes on. Lanes write one slot at
// once on purpose: exchanges instead of stores say so to racecheck. All lanes of a warp call it.
template <u32 kWarps>
__device__ __forceinline__ bool culled_by_warp(bool valid, u32 vertex, CullTables<kWarps>& s) {
  const u32 lane = threadIdx.x % 32;
  u32* slot = &s.by_warp[threadIdx.x / 32][vertex % kWarpSlots];
  if (valid) atomicExch(slot, vertex);
  __syncwarp();
  const bool same = valid && *(volatile u32*)slot == vertex;
  __syncwarp();
  if (same) atomicExch(slot, lane);
  __syncwarp();
  const bool dropped = same && *(volatile u32*)slot != lane;
  __syncwarp();
  return dropped;
}

// Return whether a thread of the block held the vertex not long ago. The table forgets: a slot holds its last vertex. One
// exchange reads and writes a slot, so that of threads that hold a vertex at once only one sees another vertex there.
template <u32 kWarps>
__device__ __forceinline__ bool culled_by_history(bool valid, u32 vertex, CullTables<kWarps>& s) {
  return valid && atomicExch(&s.history[vertex % kHistorySlots], vertex) == vertex;
}

}  // namespace dbfs
