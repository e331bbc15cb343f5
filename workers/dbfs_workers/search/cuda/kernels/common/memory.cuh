// Loads, stores and atomics by scope and cache, bitmaps, and warp-wide sums. A plain load may come from L1, which the
// acquire at every barrier empties.
#pragma once
#include "search/cuda/kernels/common/types.cuh"

namespace dbfs {

// Load a word of a stream that is read once. The stream stays out of L1, which should hold the visited bitmap.
__device__ __forceinline__ u32 load_stream(const u32* p) {
  u32 v;
  asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}

// Load a word that a peer or another block wrote in this launch: never from L1.
__device__ __forceinline__ u32 load_shared_by_gang(const u32* p) {
  u32 v;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}

__device__ __forceinline__ u64 load_relaxed(const u64* p) {
  u64 v;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}

__device__ __forceinline__ u64 load_relaxed_sys(const u64* p) {
  u64 v;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}

// An acquiring load ends a wait: everything that the writer had seen is visible after it, and L1 is empty.
__device__ __forceinline__ u64 load_acquire(const u64* p) {
  u64 v;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}

__device__ __forceinline__ u64 load_acquire_sys(const u64* p) {
  u64 v;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}

__device__ __forceinline__ void store_relaxed_sys(u64* p, u64 v) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

// Add to a counter at which blocks wait, after this thread's stores or (relaxed) in any order with them.
__device__ __forceinline__ void add_release(u64* p, u64 v) {
  asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

__device__ __forceinline__ void add_relaxed(u64* p, u64 v) {
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

__device__ __forceinline__ u32 add_acq_rel(u32* p, u32 v) {
  u32 old;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
  return old;
}

__device__ __forceinline__ void fence_sys() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

__device__ __forceinline__ void prefetch(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

// A barrier of the first `threads` of a block, whole warps, while its other threads wait for them elsewhere.
__device__ __forceinline__ void sync_first(u32 threads) {
  asm volatile("barrier.sync 1, %0;" ::"r"(threads) : "memory");
}

// Set bits without waiting for an answer: the fastest way to mark.
__device__ __forceinline__ void set_bits(u32* word, u32 bits) {
  asm volatile("red.relaxed.gpu.global.or.b32 [%0], %1;" ::"l"(word), "r"(bits) : "memory");
}

// A bitmap keeps bit `id` in word id / 32, at place id % 32.
__device__ __forceinline__ u32 bit_of(u32 id) { return 1u << (id & 31); }
__device__ __forceinline__ bool has_bit(u32 word, u32 id) { return word >> (id & 31) & 1; }
__device__ __forceinline__ bool has_bit(const u32* bitmap, u32 id) { return has_bit(bitmap[id >> 5], id); }
__device__ __forceinline__ void set_bit(u32* bitmap, u32 id) { set_bits(&bitmap[id >> 5], bit_of(id)); }

// Set a bit; true for the one thread that turned it.
__device__ __forceinline__ bool claim(u32* bitmap, u32 id) {
  const u32 bit = bit_of(id);
  return !(atomicOr(&bitmap[id >> 5], bit) & bit);
}

__device__ __forceinline__ u64 now_ns() {
  u64 t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

__device__ __forceinline__ u32 lane_id() { return threadIdx.x & (kLanes - 1); }
__device__ __forceinline__ u32 warp_in_block() { return threadIdx.x / kLanes; }
// Consecutive warps lie on different multiprocessors, so that a short queue spreads over all of them.
__device__ __forceinline__ u32 warp_in_grid() { return warp_in_block() * gridDim.x + blockIdx.x; }
__device__ __forceinline__ u32 warps_in_grid() { return gridDim.x * kWarps; }
// A mask of the lanes below this one.
__device__ __forceinline__ u32 lanes_below() { return (1u << lane_id()) - 1; }

// The sum of `v` over the lanes below this one, and over all lanes in `total`.
__device__ __forceinline__ u32 scan_exclusive(u32 v, u32& total) {
  u32 sum = v;
#pragma unroll
  for (u32 step = 1; step < kLanes; step <<= 1) {
    const u32 other = __shfl_up_sync(kAll, sum, step);
    if (lane_id() >= step) sum += other;
  }
  total = __shfl_sync(kAll, sum, kLanes - 1);
  return sum - v;
}

__device__ __forceinline__ u32 warp_sum(u32 v) {
#if __CUDA_ARCH__ >= 800
  return __reduce_add_sync(kAll, v);
#else
#pragma unroll
  for (u32 step = kLanes / 2; step; step >>= 1) v += __shfl_xor_sync(kAll, v, step);
  return v;
#endif
}

}  // namespace dbfs
