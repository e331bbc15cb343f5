// The kernels of search/cuda/kernels/resident/summary.cu and search/cuda/kernels/resident/facts.cu on a CPU. Their headers are PTX; the little that the kernels
// take of them is here.
#include "cuda_on_cpu.h"

using std::max;
#include "search/cuda/kernels/resident/facts.cu"

struct int4 {
  int x, y, z, w;
};
struct longlong2 {
  i64 x, y;
};

namespace dbfs {

constexpr u32 kLanes = 32;

inline u32 lane_id() { return threadIdx.x & (kLanes - 1); }
inline u64 load_relaxed(const u64* place) { return *place; }
inline u32 warp_sum(u32 v) {
  for (u32 step = kLanes / 2; step; step >>= 1) v += __shfl_xor_sync(kAll, v, step);
  return v;
}

}  // namespace dbfs

inline u32 min(u32 a, u32 b) { return a < b ? a : b; }
inline u32 __funnelshift_lc(u32 low, u32 high, u32 shift) {
  const u64 both = (u64)high << 32 | low;
  return (u32)(both << (shift < 32 ? shift : 32) >> 32);
}

// The shared variables of inline functions would lie in a section of their own.
#undef __forceinline__
#define __forceinline__ static
// A copy whose dynamic shared memory has a size.
#include "sized_summary.cu"

static const char* said(std::string answer) {
  static std::string kept;
  kept = answer;
  return kept.c_str();
}

extern "C" const char* common_degrees(unsigned blocks, unsigned threads, u64 seed, const i64* offsets, i64 rows,
                                      u32* common, u64* mixed) {
  return said(cuda_on_cpu::run(blocks, threads, seed, [=] { dbfs_common_degrees(offsets, rows, common, mixed); }));
}

extern "C" const char* facts(unsigned threads, u64 seed, const i64* offsets, const u32* columns, i64 rows,
                             u32 table_degree, u32 log, u64* sums, u32* table) {
  const unsigned blocks = (rows + threads - 1) / threads;
  const char* failed = said(cuda_on_cpu::run(blocks, threads, seed, [=] {
    dbfs_facts(offsets, columns, nullptr, nullptr, nullptr, nullptr, rows, table_degree, 256, 512, sums);
  }));
  if (*failed) return failed;
  return said(cuda_on_cpu::run(blocks, threads, seed, [=] { dbfs_table(offsets, columns, rows, log, table); }));
}

extern "C" const char* hubs(unsigned threads, const i64* offsets, const u32* columns, i64 rows, u32* uses, u32* found) {
  const unsigned blocks = (rows + threads - 1) / threads;
  const i64 edges = offsets[rows];
  const char* failed = said(cuda_on_cpu::run(3, threads, 1, [=] { dbfs_uses(columns, edges, uses); }));
  return *failed ? failed : said(cuda_on_cpu::run(blocks, threads, 2, [=] { dbfs_hubs(offsets, columns, uses, rows, found); }));
}

extern "C" const char* summary(unsigned blocks, unsigned threads, u64 seed, const i64* offsets, const u32* common,
                               const i32* distances, i64 rows, u64* sums, u32* finished, u64* on_host, u32 bins,
                               u32 shared_bins, u32 copies) {
  return said(cuda_on_cpu::run(blocks, threads, seed, [=] {
    dbfs_summary(offsets, common, distances, rows, sums, finished, on_host, bins, shared_bins, copies);
  }));
}
