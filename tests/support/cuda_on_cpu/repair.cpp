// The kernel of features/living/kernels/repair.cu on a CPU. Its header is PTX; what the kernel takes of it is here.
#include "cuda_on_cpu.h"

using u32 = unsigned;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

namespace dbfs {

constexpr u32 kLanes = 32, kAll = 0xffffffffu, kNoVertex = 0xffffffffu, kThreads = 64, kWarps = 2;

inline u64 nanoseconds = 0;  // each look at the clock takes one

inline u32 lane_id() { return threadIdx.x & (kLanes - 1); }
inline u32 lanes_below() { return (1u << lane_id()) - 1; }
inline u32 warp_in_block() { return threadIdx.x / kLanes; }
inline u32 warp_in_grid() { return warp_in_block() * gridDim.x + blockIdx.x; }
inline u32 warps_in_grid() { return gridDim.x * kWarps; }
inline u32 load_shared_by_gang(const u32* place) { return __ldcg(place); }
inline u64 load_relaxed(const u64* place) { return __ldcg(place); }
inline u32 bit_of(u32 id) { return 1u << (id & 31); }
inline void set_bit(u32* bitmap, u32 id) { atomicOr(&bitmap[id >> 5], bit_of(id)); }
inline bool claim(u32* bitmap, u32 id) { return !(atomicOr(&bitmap[id >> 5], bit_of(id)) & bit_of(id)); }
inline u64 now_ns() { return ++nanoseconds; }
inline void prefetch(const void*) {}

}  // namespace dbfs

// The shared variables of inline functions would lie in a section of their own.
#undef __forceinline__
#define __forceinline__ static
#include "features/living/kernels/repair.cu"

extern "C" const char* run_repair(unsigned blocks, u64 seed, unsigned accesses_a_turn, const Repair* a) {
  static std::string answer;
  cuda_on_cpu::accesses_a_turn = accesses_a_turn;
  const Repair given = *a;
  answer = cuda_on_cpu::run(blocks, dbfs::kThreads, seed, [=] { dbfs_repair(given); });
  return answer.c_str();
}
