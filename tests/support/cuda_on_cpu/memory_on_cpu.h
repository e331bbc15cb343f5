// search/cuda/kernels/common/memory.cuh for one GPU on a CPU, without PTX. Where threads wait for others, a load lets
// them go first now and then.
#pragma once
#include "search/cuda/kernels/common/types.cuh"

namespace dbfs {

template <class T>
inline T seen_by_all(const T* p) {
  cuda_on_cpu::sometimes_let_others_go_first();
  return *(const volatile T*)p;
}

inline u32 load_stream(const u32* p) { return *p; }
inline u32 load_shared_by_gang(const u32* p) { return seen_by_all(p); }
inline u64 load_relaxed(const u64* p) { return seen_by_all(p); }
inline u64 load_relaxed_sys(const u64* p) { return seen_by_all(p); }
inline u64 load_acquire(const u64* p) { return seen_by_all(p); }
inline u64 load_acquire_sys(const u64* p) { return seen_by_all(p); }
inline void store_relaxed_sys(u64* p, u64 v) { *p = v; }
inline void add_release(u64* p, u64 v) { atomicAdd(p, v); }
inline void add_relaxed(u64* p, u64 v) { atomicAdd(p, v); }
inline u32 add_acq_rel(u32* p, u32 v) { return atomicAdd(p, v); }
inline void fence_sys() {}
inline void prefetch(const void*) {}
inline void sync_first(u32 threads) { cuda_on_cpu::meet_first(threads); }
inline void set_bits(u32* word, u32 bits) { atomicOr(word, bits); }

inline u32 bit_of(u32 id) { return 1u << (id & 31); }
inline bool has_bit(u32 word, u32 id) { return word >> (id & 31) & 1; }
inline bool has_bit(const u32* bitmap, u32 id) { return has_bit(bitmap[id >> 5], id); }
inline void set_bit(u32* bitmap, u32 id) { set_bits(&bitmap[id >> 5], bit_of(id)); }
inline bool claim(u32* bitmap, u32 id) { return !(atomicOr(&bitmap[id >> 5], bit_of(id)) & bit_of(id)); }

inline u64 ticks = 0;
inline u64 now_ns() { return ++ticks; }

inline u32 lane_id() { return threadIdx.x & (kLanes - 1); }
inline u32 warp_in_block() { return threadIdx.x / kLanes; }
inline u32 warp_in_grid() { return warp_in_block() * gridDim.x + blockIdx.x; }
inline u32 warps_in_grid() { return gridDim.x * kWarps; }
inline u32 lanes_below() { return (1u << lane_id()) - 1; }

inline u32 scan_exclusive(u32 v, u32& total) {
  u32 sum = v;
  for (u32 step = 1; step < kLanes; step <<= 1) {
    const u32 other = __shfl_up_sync(kAll, sum, step);
    if (lane_id() >= step) sum += other;
  }
  total = __shfl_sync(kAll, sum, kLanes - 1);
  return sum - v;
}

inline u32 warp_sum(u32 v) {
  for (u32 step = kLanes / 2; step; step >>= 1) v += __shfl_xor_sync(kAll, v, step);
  return v;
}

}  // namespace dbfs
