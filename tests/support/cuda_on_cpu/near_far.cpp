// The kernels of features/weights/kernels/near_far.cu on a CPU. Their header is PTX; what the kernels take of it is here.
#include "cuda_on_cpu.h"

inline unsigned blocks_a_rank = 1;
#undef blockIdx
#undef gridDim
#define blockIdx (cuda_on_cpu::Dim{cuda_on_cpu::current->block->index % blocks_a_rank, 0, 0})
#define gridDim (cuda_on_cpu::Dim{blocks_a_rank, 0, 0})

using u32 = unsigned;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

namespace dbfs {

constexpr u32 kLanes = 32, kAll = 0xffffffffu, kNoVertex = 0xffffffffu, kThreads = 64, kWarps = 2, kBlocksPerSm = 1;
constexpr u32 kMaxRanks = 8, kFlagWords = 4, kFlagSlots = 4;
constexpr bool kGang = DBFS_GANG;

inline u64 nanoseconds = 0;  // each look at the clock takes one

inline u32 lane_id() { return threadIdx.x & (kLanes - 1); }
inline u32 lanes_below() { return (1u << lane_id()) - 1; }
inline u32 warp_in_block() { return threadIdx.x / kLanes; }
inline u32 warp_in_grid() { return warp_in_block() * gridDim.x + blockIdx.x; }
inline u32 warps_in_grid() { return gridDim.x * kWarps; }
inline u32 load_shared_by_gang(const u32* place) { return __ldcg(place); }
inline u64 load_relaxed(const u64* place) { return __ldcg(place); }
inline u64 load_relaxed_sys(const u64* place) { return __ldcg(place); }
inline u64 load_acquire_sys(const u64* place) { return __ldcg(place); }
inline void store_relaxed_sys(u64* place, u64 word) { atomicExch(place, word); }
inline void fence_sys() {}
inline u32 bit_of(u32 id) { return 1u << (id & 31); }
inline bool has_bit(u32 word, u32 id) { return word >> (id & 31) & 1; }
inline void set_bit(u32* bitmap, u32 id) { atomicOr(&bitmap[id >> 5], bit_of(id)); }
inline bool claim(u32* bitmap, u32 id) { return !(atomicOr(&bitmap[id >> 5], bit_of(id)) & bit_of(id)); }
inline u64 now_ns() { return ++nanoseconds; }
inline u32 scan_exclusive(u32 v, u32& total) {
  u32 sum = v;
  for (u32 step = 1; step < kLanes; step <<= 1) {
    const u32 other = __shfl_up_sync(kAll, sum, step);
    if (lane_id() >= step) sum += other;
  }
  total = __shfl_sync(kAll, sum, kLanes - 1);
  return sum - v;
}

}  // namespace dbfs

inline u32 __float_as_uint(float number) { return (u32)cuda_on_cpu::word_of(number); }
inline float __uint_as_float(u32 bits) { return cuda_on_cpu::value_of<float>(bits); }
inline i64 __double_as_longlong(double number) { return (i64)cuda_on_cpu::word_of(number); }
inline double __longlong_as_double(i64 bits) { return cuda_on_cpu::value_of<double>((u64)bits); }

#undef __forceinline__
#define __forceinline__ inline
#include "features/weights/kernels/near_far.cu"

// Run the grids of some ranks side by side, as one.
extern "C" const char* run_near_far(const char* name, unsigned blocks, u64 seed, unsigned ranks, const Weights* const* a) {
  static std::string answer;
  cuda_on_cpu::accesses_a_turn = 8;
  blocks_a_rank = blocks;
  const std::string type = name;
  const auto kernel = type == "whole32"   ? dbfs_weights_whole32
                      : type == "int64"   ? dbfs_weights_int64
                      : type == "float32" ? dbfs_weights_float32
                                          : dbfs_weights_float64;
  answer = cuda_on_cpu::run(ranks * blocks, kThreads, seed, [=] {
    kernel(*a[cuda_on_cpu::current->block->index / blocks]);
  });
  return answer.c_str();
}
