// The bottom-up kernel of phases/levels.cu on a CPU, with common/search.cuh. The headers below these are PTX; the little
// that the kernel takes of them is here.
#include "cuda_on_cpu.h"

namespace dbfs {

using u8 = unsigned char;
using u32 = unsigned;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

struct Line {
  u64 value;
  u64 blank[15];
};

struct Frontier {
  const u32* rows;
  const i64 *starts, *ends;
  i64 size;
};

constexpr u32 kLanes = 32, kAll = 0xffffffffu, kNoVertex = 0xffffffffu, kSerialEdges = 3;

inline u32 bit_of(u32 id) { return 1u << (id & 31); }
inline bool has_bit(u32 word, u32 id) { return word >> (id & 31) & 1; }
inline bool has_bit(const u32* bitmap, u32 id) { return has_bit(bitmap[id >> 5], id); }
inline void set_bit(u32* bitmap, u32 id) { atomicOr(&bitmap[id >> 5], bit_of(id)); }
inline bool claim_unseen(u32* bitmap, u32 id) { return !(atomicOr(&bitmap[id >> 5], bit_of(id)) & bit_of(id)); }
inline u32 lane_id() { return threadIdx.x & (kLanes - 1); }
inline u32 lanes_below() { return (1u << lane_id()) - 1; }
inline u32 warp_in_grid() { return threadIdx.x / kLanes * gridDim.x + blockIdx.x; }
inline u64 reserve(u64* end, u32) { return atomicAdd(end, u64(1)); }
inline void add_sum(u64* sum, u64 value) { atomicAdd(sum, value); }
// Of `top_down`, which does not run here.
template <class Visit>
inline void visit_edges(Frontier, const u32*, Visit) {}

}  // namespace dbfs

using namespace dbfs;
#define __match_any_sync(mask, value) 1u
#include "phases/levels.cu"

extern "C" const char* bottom_up(unsigned blocks, unsigned long long seed, const i64* in_offsets, const u32* in_columns,
                                 const i64* out_offsets, u32 words, const u32* frontier, u32* visited, u32* found_bits,
                                 i32 distance, i32* distances, u32* predecessors, u32* discovered, Line* sums) {
  static std::string said;
  said = cuda_on_cpu::run(blocks, 64, seed, [=] {
    dbfs_bottom_up(in_offsets, in_columns, out_offsets, words, frontier, visited, found_bits, distance, distances,
                   predecessors, discovered, sums);
  });
  return said.c_str();
}
