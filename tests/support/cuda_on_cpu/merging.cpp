// The kernels of features/living/kernels/merging.cu on a CPU.
#include "cuda_on_cpu.h"

#include "features/living/kernels/merging.cu"

static const char* said(std::string answer) {
  static std::string kept;
  kept = answer;
  return kept.c_str();
}

#define RUN(name, parameters, arguments)                                                              \
  extern "C" const char* run_##name(unsigned blocks, unsigned long long seed, REMOVE_PARENS parameters) { \
    return said(cuda_on_cpu::run(blocks, dbfs::kThreads, seed, [=] { name arguments; }));             \
  }
#define REMOVE_PARENS(...) __VA_ARGS__

RUN(dbfs_plan_changes,
    (const u64* keys, i64 count, const i64* offsets, const u32* columns, u32 first_id, u32 ranks, u32 n_local,
     u32 directed, u32 remove, i64* places, i64* amounts, u64* sums),
    (keys, count, offsets, columns, first_id, ranks, n_local, directed, remove, places, amounts, sums))
RUN(dbfs_merged_offsets,
    (const u64* keys, i64 count, const i64* before, const i64* offsets, i64 rows, u32 remove, i64* merged, u64* sums),
    (keys, count, before, offsets, rows, remove, merged, sums))
RUN(dbfs_insert_columns,
    (const u64* keys, i64 count, const i64* places, const i64* before, u32 ranks, u32 n_local, u32* merged),
    (keys, count, places, before, ranks, n_local, merged))
RUN(dbfs_move_columns,
    (const u32* columns, i64 size, const i64* places, const i64* before, i64 count, u32 remove, u32* merged),
    (columns, size, places, before, count, remove, merged))
