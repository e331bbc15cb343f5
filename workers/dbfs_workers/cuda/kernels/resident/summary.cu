// The summary of a finished run on this rank, made from the labels: the rows at each distance, and the sum of their
// degrees.
#include "common/memory.cuh"

// The last block to finish copies the sums to host memory, and clears them and the count of blocks for the next run.
__device__ __forceinline__ void hand_over_sums(u32 bins, u64* sums, u32* finished, u64* on_host) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(finished, 1u) == gridDim.x - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  for (u32 i = threadIdx.x; i < 2 * bins; i += blockDim.x) {
    on_host[i] = dbfs::load_relaxed(&sums[i]);
    sums[i] = 0;
  }
  if (threadIdx.x == 0) *finished = 0;
}

// A thread reads one row: 20 bytes. A block counts the first `shared_bins` distances in shared memory, and the rest in
// global memory: a run with more distances has few rows at each. Each shared distance has 2^copies counters, so that
// lanes do not fight over one. `sums`: [2][bins] rows, then degrees, by distance. `on_host`: where the last block
// copies the sums, or null; then the sums stay.
extern "C" __global__ void dbfs_summary(const i64* offsets, const i32* distances, i64 rows, u64* sums, u32* finished,
                                        u64* on_host, u32 bins, u32 shared_bins, u32 copies) {
  extern __shared__ u32 counted[];
  u32* const degrees = counted + (shared_bins << copies);
  for (u32 i = threadIdx.x; i < shared_bins << copies; i += blockDim.x) counted[i] = degrees[i] = 0;
  __syncthreads();
  const u32 copy = dbfs::lane_id() & ((1u << copies) - 1);
  const i64 threads = (i64)gridDim.x * blockDim.x;
  for (i64 row = (i64)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += threads) {
    const u32 bin = (u32)distances[row];
    if (bin >= bins) continue;  // unreached: -1
    const u64 degree = offsets[row + 1] - offsets[row];
    if (bin >= shared_bins) {
      atomicAdd(&sums[bin], 1ull);
      atomicAdd(&sums[bins + bin], degree);
      continue;
    }
    const u32 at = bin << copies | copy, low = (u32)degree;
    atomicAdd(&counted[at], 1u);
    const u64 high = (degree >> 32) + (atomicAdd(&degrees[at], low) + low < low);
    if (high) atomicAdd(&sums[bins + bin], high << 32);
  }
  __syncthreads();
  for (u32 bin = threadIdx.x; bin < shared_bins; bin += blockDim.x) {
    u64 count = 0, degree = 0;
    for (u32 i = bin << copies; i < (bin + 1) << copies; ++i) {
      count += counted[i];
      degree += degrees[i];
    }
    if (count) {
      atomicAdd(&sums[bin], count);
      atomicAdd(&sums[bins + bin], degree);
    }
  }
  if (on_host) hand_over_sums(bins, sums, finished, on_host);
}
