// The kernel of features/paths/kernels/pairs.cu on a CPU.
#include "cuda_on_cpu.h"

#undef __forceinline__
#define __forceinline__ inline
#include "features/paths/kernels/pairs.cu"

extern "C" const char* run_pairs(unsigned blocks, u64 seed, const Pairs* a) {
  static std::string answer;
  const Pairs given = *a;
  answer = cuda_on_cpu::run(blocks, dbfs::kThreads, seed, [=] { dbfs_pair_distances(given); });
  return answer.c_str();
}
