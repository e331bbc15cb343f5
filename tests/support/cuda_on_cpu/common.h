// What kernels take of the headers in common/ and of search/cuda/kernels/phases/reserve.cuh, which are PTX. kSerialEdges is small, so that
// small graphs have rows with more edges.
#pragma once
#include "cuda_on_cpu.h"

namespace dbfs {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

struct Line {
  u64 value;
  u64 blank[15];
};

constexpr u32 kLanes = 32, kAll = 0xffffffffu, kNoVertex = 0xffffffffu, kSerialEdges = 3;

inline u32 load_stream(const u32* p) { return *p; }
inline u32 bit_of(u32 id) { return 1u << (id & 31); }
inline bool has_bit(u32 word, u32 id) { return word >> (id & 31) & 1; }
inline bool has_bit(const u32* bitmap, u32 id) { return has_bit(bitmap[id >> 5], id); }
inline void set_bit(u32* bitmap, u32 id) { atomicOr(&bitmap[id >> 5], bit_of(id)); }
inline bool claim_unseen(u32* bitmap, u32 id) {
  return !has_bit(bitmap, id) && !(atomicOr(&bitmap[id >> 5], bit_of(id)) & bit_of(id));
}
inline u32 lane_id() { return threadIdx.x & (kLanes - 1); }
inline u32 lanes_below() { return (1u << lane_id()) - 1; }
inline u32 warp_in_grid() { return threadIdx.x / kLanes * gridDim.x + blockIdx.x; }
inline u64 reserve(u64* end, u32) { return atomicAdd(end, u64(1)); }
inline void add_sum(u64* sum, u64 value) { atomicAdd(sum, value); }

}  // namespace dbfs

using namespace dbfs;
