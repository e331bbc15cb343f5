// The kernels of features/batches/kernels/batch.cu and features/batches/kernels/path_sums.cu on a CPU, with search/cuda/kernels/phases/edges.cuh.
#include "common.h"

inline u64 load_relaxed(const u64* p) { return __ldcg(p); }
inline int __popcll(unsigned long long word) { return __builtin_popcountll(word); }
inline int __ffsll(long long word) { return __builtin_ffsll(word); }
inline u32 warp_sum(u32 v) {
  for (u32 step = 16; step; step >>= 1) v += __shfl_xor_sync(kAll, v, step);
  return v;
}
#include "features/batches/kernels/batch.cu"
#include "features/batches/kernels/path_sums.cu"
#include "run.h"

RUN(batch_push)
RUN(batch_push_rows)
RUN(batch_pull_1)
RUN(batch_pull_2)
RUN(batch_pull_4)
RUN(batch_pull_8)
RUN(batch_pull_16)
RUN(batch_pull_rest)
RUN(batch_choose)
RUN(batch_settle)
RUN(batch_note)
RUN(batch_clear)
RUN(batch_take)
RUN(path_sums_list_rows)
RUN(path_sums_add_up)
RUN(path_sums_finish)
