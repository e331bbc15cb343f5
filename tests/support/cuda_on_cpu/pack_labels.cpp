// The kernel of features/validation/kernels/validation.cu that packs labels, on a CPU.
#include "cuda_on_cpu.h"
#include "features/validation/kernels/validation.cu"

extern "C" const char* pack_labels(unsigned blocks, unsigned threads, u64 seed, const i32* distances,
                                   const u32* predecessors, i64 rows, i64 n, u32 rank, u32 ranks, u32 n_local,
                                   i64 farthest, const u32* sources, u32 source_count, u64* words, u64* found) {
  static std::string answer;
  answer = cuda_on_cpu::run(blocks, threads, seed, [=] {
    dbfs_pack_labels(distances, predecessors, rows, n, rank, ranks, n_local, farthest, sources, source_count, words,
                     found);
  });
  return answer.c_str();
}
