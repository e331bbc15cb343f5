// The kernels of phases/batch.cu on a CPU, with phases/edges.cuh. Some of their headers are PTX; the little that the
// kernels take of them is here.
#include "cuda_on_cpu.h"

namespace dbfs {

using u8 = unsigned char;
using u32 = unsigned;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

constexpr u32 kLanes = 32, kAll = 0xffffffffu, kNoVertex = 0xffffffffu;

inline u32 load_stream(const u32* p) { return *p; }
inline u64 load_relaxed(const u64* p) { return __ldcg(p); }
inline u32 bit_of(u32 id) { return 1u << (id & 31); }
inline bool has_bit(u32 word, u32 id) { return word >> (id & 31) & 1; }
inline bool has_bit(const u32* bitmap, u32 id) { return has_bit(bitmap[id >> 5], id); }
inline void set_bit(u32* bitmap, u32 id) { atomicOr(&bitmap[id >> 5], bit_of(id)); }
inline u32 lane_id() { return threadIdx.x & (kLanes - 1); }
inline u32 lanes_below() { return (1u << lane_id()) - 1; }
inline u32 warp_in_grid() { return threadIdx.x / kLanes * gridDim.x + blockIdx.x; }
inline u64 reserve(u64* end, u32) { return atomicAdd(end, u64(1)); }
inline void add_sum(u64* sum, u64 value) { atomicAdd(sum, value); }

}  // namespace dbfs

using namespace dbfs;
inline int __popcll(unsigned long long word) { return __builtin_popcountll(word); }
#include "phases/batch.cu"
#include "run.h"

RUN(batch_push)
RUN(batch_push_rows)
RUN(batch_pull_1)
RUN(batch_pull_2)
RUN(batch_pull_4)
RUN(batch_pull_8)
RUN(batch_pull_16)
RUN(batch_pull_rest)
RUN(batch_unite)
RUN(batch_settle)
RUN(batch_note)
RUN(batch_clear)
RUN(batch_take)
