// Kernels with faults that the emulator must show.
#include "features/lab/kernels/problem.cuh"

// Only some threads of a block reach its barrier.
extern "C" __global__ void dbfs_missing_barrier(const dbfs::LabArguments a) {
  if (threadIdx.x) __syncthreads();
}

// Threads read a counter and write it back, and overwrite each other's update.
extern "C" __global__ void dbfs_lost_updates(const dbfs::LabArguments a) {
  a.counters[0] = __ldcg(&a.counters[0]) + 1;
}
