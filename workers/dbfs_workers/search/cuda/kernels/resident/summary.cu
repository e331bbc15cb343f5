// The summary of a finished run on this rank, made from the labels: the rows at each distance, and the sum of their
// degrees. Runs whose kernel counts both (search/cuda/kernels/resident/degree_sums.cuh) go without.
#include "search/cuda/kernels/common/groups.cuh"
#include "search/cuda/kernels/common/memory.cuh"

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

// Distances that a warp counts in registers, a lane for each: most rows of a graph with hubs have one of them, and lanes
// that add to one counter in shared memory queue behind each other.
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

// A warp reads a group of rows at a time, four rows a lane.
static_assert(dbfs::kGroupRows == 4 * dbfs::kLanes, "a group fills a warp");

// Counts of near distances, of four rows of each lane: a byte for each distance, of which a warp fills 128 at most.
struct NearCounts {
  u32 low, high;
};

// 1 in the byte of a distance, whose bits begin at `bit`; 0 if the word ends before: then the funnel shifts all out.
__device__ __forceinline__ u32 one_from(u32 bit) { return __funnelshift_lc(0u, 1u, bit); }

__device__ __forceinline__ NearCounts near_counts(const u32 (&at)[4]) {
  NearCounts of_lane = {};
#pragma unroll
  for (u32 i = 0; i < 4; ++i) {
    // Far distances and -1 would wrap around in 32 bits.
    const u32 bit = 8 * min(at[i], kNear);
    of_lane.low += one_from(bit);
    of_lane.high += one_from(bit - 32);
  }
  return {dbfs::warp_sum(of_lane.low), dbfs::warp_sum(of_lane.high)};
}

// A warp takes a group at a time, four rows a lane: it reads 4 bytes a row, and 8 more in a group of mixed degrees. Lane
// i keeps the sums of distance i below kNear. A block counts the others up to `shared_bins` in shared memory, and the
// rest goes to global memory: a run with more distances has few rows at each. `rows` is a multiple of 4, `bins` at least
// kNear. `common`: of dbfs_common_degrees (search/cuda/kernels/resident/facts.cu). `sums`: [2][bins] rows, then degrees, by distance. `on_host`: where the last
// block copies the sums, or null; then the sums stay.
extern "C" __global__ void dbfs_summary(const i64* offsets, const u32* common, const i32* distances, i64 rows,
                                        u64* sums, u32* finished, u64* on_host, u32 bins, u32 shared_bins,
                                        u32 copies) {
  extern __shared__ u32 counted[];
  __shared__ u64 near_sums[2 * kNear];
  const Counters of_block = {counted, counted + (shared_bins << copies), copies};
  for (u32 i = threadIdx.x; i < 2 * shared_bins << copies; i += blockDim.x) counted[i] = 0;
  if (threadIdx.x < 2 * kNear) near_sums[threadIdx.x] = 0;
  __syncthreads();
  const u32 lane = dbfs::lane_id();
  u64 near_rows = 0, near_degrees = 0;
  const i64 quads = rows / 4, groups = (quads + dbfs::kLanes - 1) / dbfs::kLanes;
  const i64 warps = (i64)gridDim.x * blockDim.x / dbfs::kLanes;
  const int4* const fours = (const int4*)distances;
  const int4 none = {-1, -1, -1, -1};
  // A warp's group, and its next group, which is fetched ahead: a block has too few threads to keep
  // the memory busy.
  i64 next = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / dbfs::kLanes;
  int4 four_ahead = none;
  u32 common_ahead = 0;
  if (next * dbfs::kLanes + lane < quads) four_ahead = fours[next * dbfs::kLanes + lane];
  if (next < groups) common_ahead = common[next];
  while (next < groups) {
    const i64 quad = next * dbfs::kLanes + lane;
    const u32 at[4] = {(u32)four_ahead.x, (u32)four_ahead.y, (u32)four_ahead.z, (u32)four_ahead.w};
    const u32 degree_of_all = common_ahead;
    next += warps;
    four_ahead = none;
    if (next * dbfs::kLanes + lane < quads) four_ahead = fours[next * dbfs::kLanes + lane];
    if (next < groups) common_ahead = common[next];
    const NearCounts counts = near_counts(at);
    const u32 own_count = lane < kNear ? (lane < 4 ? counts.low : counts.high) >> 8 * (lane & 3) & 0xff : 0;
    near_rows += own_count;
    if (degree_of_all != dbfs::kMixed) {
      near_degrees += (u64)own_count * degree_of_all;
#pragma unroll
      for (u32 i = 0; i < 4; ++i) {
        if (at[i] >= kNear) count_far(of_block, shared_bins, bins, sums, at[i], degree_of_all);
      }
      continue;
    }
    u64 degrees[4] = {};
    if (quad < quads) {
      const longlong2 first = ((const longlong2*)offsets)[2 * quad], second = ((const longlong2*)offsets)[2 * quad + 1];
      const i64 ends[5] = {first.x, first.y, second.x, second.y, offsets[4 * quad + 4]};
#pragma unroll
      for (u32 i = 0; i < 4; ++i) degrees[i] = ends[i + 1] - ends[i];
    }
    // Few groups come here: unrolled, this loop would take registers from all.
#pragma unroll 1
    for (u32 bin = 0; bin < kNear; ++bin) {
      u64 degree = 0;
#pragma unroll
      for (u32 i = 0; i < 4; ++i) degree += at[i] == bin ? degrees[i] : 0;
      degree = warp_sum64(degree);
      if (lane == bin) near_degrees += degree;
    }
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      if (at[i] >= kNear) count_far(of_block, shared_bins, bins, sums, at[i], degrees[i]);
    }
  }
  if (lane < kNear && near_rows) {
    atomicAdd(&near_sums[lane], near_rows);
    atomicAdd(&near_sums[kNear + lane], near_degrees);
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
