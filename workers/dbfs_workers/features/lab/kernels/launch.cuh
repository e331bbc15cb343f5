// Launches by kernels (CUDA's dynamic parallelism). Kernels that use them are linked with CUDA's device runtime.
//
// DBFS_LAUNCH(kernel, blocks, stream, arguments...) launches blocks of kThreads; cudaGetLastError() then says whether the
// device took the launch. A grid ends when all grids that it launched have ended.
#pragma once
#include "features/lab/kernels/problem.cuh"

// The tests' emulator of a GPU brings its own: C++ has no such syntax.
#ifndef DBFS_LAUNCH
#define DBFS_LAUNCH(kernel, blocks, stream, ...) kernel<<<blocks, kThreads, 0, stream>>>(__VA_ARGS__)
#endif

namespace dbfs {
namespace lab {

// Blocks for so many units of work, but not above the most of a launch by a kernel.
__device__ __forceinline__ u32 blocks_for(const LabArguments& a, u64 work, u64 of_a_block) {
  const u64 blocks = (work + of_a_block - 1) / of_a_block;
  return blocks < a.most_blocks ? blocks : a.most_blocks;
}

}  // namespace lab
}  // namespace dbfs
