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

// Distances that a thread counts in registers: most rows of a graph with hubs have one of them, and lanes that add to
// one counter in shared memory queue behind each other.
constexpr u32 kNear = 8;

__device__ __forceinline__ u64 warp_sum64(u64 v) {
#pragma unroll
  for (u32 step = dbfs::kLanes / 2; step; step >>= 1) v += __shfl_xor_sync(dbfs::kAll, v, step);
  return v;
}

// Counters of a block in shared memory: 2^copies for each distance, so that lanes do not fight over one.
struct Counters {
  u32* rows;
  u32* degrees;
  u32 copies;
};

// Add a row to the counters of its distance: those of the block, or of the whole grid past `shared_bins`.
__device__ __forceinline__ void count_far(const Counters& of_block, u32 shared_bins, u32 bins, u64* sums, u32 bin,
                                          u64 degree) {
  if (bin >= bins) return;  // unreached: -1
  if (bin >= shared_bins) {
    atomicAdd(&sums[bin], 1ull);
    atomicAdd(&sums[bins + bin], degree);
    return;
  }
  const u32 at = bin << of_block.copies | dbfs::lane_id() & ((1u << of_block.copies) - 1), low = (u32)degree;
  atomicAdd(&of_block.rows[at], 1u);
  const u64 high = (degree >> 32) + (atomicAdd(&of_block.degrees[at], low) + low < low);
  if (high) atomicAdd(&sums[bins + bin], high << 32);
}

// A thread reads four rows at a time: 12 bytes a row. It counts the first kNear distances in registers. A block counts
// the others up to `shared_bins` in shared memory, and the rest goes to global memory: a run with more distances has few
// rows at each. `rows` is a multiple of 4, `bins` at least kNear. `sums`: [2][bins] rows, then degrees, by distance. `on_host`: where the last
// block copies the sums, or null; then the sums stay.
extern "C" __global__ void dbfs_summary(const i64* offsets, const i32* distances, i64 rows, u64* sums, u32* finished,
                                        u64* on_host, u32 bins, u32 shared_bins, u32 copies) {
  extern __shared__ u32 counted[];
  __shared__ u64 near_sums[2 * kNear];
  const Counters of_block = {counted, counted + (shared_bins << copies), copies};
  for (u32 i = threadIdx.x; i < 2 * shared_bins << copies; i += blockDim.x) counted[i] = 0;
  if (threadIdx.x < 2 * kNear) near_sums[threadIdx.x] = 0;
  __syncthreads();
  u32 near_rows[kNear] = {};
  u64 near_degrees[kNear] = {};
  const i64 threads = (i64)gridDim.x * blockDim.x;
  for (i64 quad = (i64)blockIdx.x * blockDim.x + threadIdx.x; quad < rows / 4; quad += threads) {
    const int4 four = ((const int4*)distances)[quad];
    const longlong2 first = ((const longlong2*)offsets)[2 * quad], second = ((const longlong2*)offsets)[2 * quad + 1];
    const i64 ends[5] = {first.x, first.y, second.x, second.y, offsets[4 * quad + 4]};
    const u32 at[4] = {(u32)four.x, (u32)four.y, (u32)four.z, (u32)four.w};
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      const u64 degree = ends[i + 1] - ends[i];
#pragma unroll
      for (u32 bin = 0; bin < kNear; ++bin) {
        near_rows[bin] += at[i] == bin;
        near_degrees[bin] += at[i] == bin ? degree : 0;
      }
      if (at[i] >= kNear) count_far(of_block, shared_bins, bins, sums, at[i], degree);
    }
  }
#pragma unroll
  for (u32 bin = 0; bin < kNear; ++bin) {
    const u64 count = dbfs::warp_sum(near_rows[bin]), degree = warp_sum64(near_degrees[bin]);
    if (count && dbfs::lane_id() == 0) {
      atomicAdd(&near_sums[bin], count);
      atomicAdd(&near_sums[kNear + bin], degree);
    }
  }
  __syncthreads();
  if (threadIdx.x < 2 * kNear && near_sums[threadIdx.x]) {
    const u32 bin = threadIdx.x % kNear;
    atomicAdd(&sums[threadIdx.x < kNear ? bin : bins + bin], near_sums[threadIdx.x]);
  }
  for (u32 bin = kNear + threadIdx.x; bin < shared_bins; bin += blockDim.x) {
    u64 count = 0, degree = 0;
    for (u32 i = bin << copies; i < (bin + 1) << copies; ++i) {
      count += of_block.rows[i];
      degree += of_block.degrees[i];
    }
    if (count) {
      atomicAdd(&sums[bin], count);
      atomicAdd(&sums[bins + bin], degree);
    }
  }
  if (on_host) hand_over_sums(bins, sums, finished, on_host);
}
