// What a finished run found on this rank, from its labels: the rows reached, the sum of their degrees, the largest
// distance, and how many rows each level labelled.
#include "memory.cuh"

namespace dbfs {

// Layout of `sums`: these, then the rows at distance 0, 1, ... `bins` - 1.
enum { kReachedSum, kEdgesSum, kDepthSum, kFirstBin };

}  // namespace dbfs

// A thread reads one row: 20 bytes. A warp counts rows of one distance together, a block counts in shared memory
// (`shared_bins` words of it, the first levels'), so that a level of millions of rows does not fight over one counter;
// where there are more levels than room, few rows are in each. Rows are a multiple of 32: warps stay whole.
extern "C" __global__ void dbfs_summary(const i64* offsets, const i32* distances, i64 rows, u32 bins, u32 shared_bins,
                                        u64* sums) {
  extern __shared__ u32 labelled[];
  for (u32 i = threadIdx.x; i < shared_bins; i += blockDim.x) labelled[i] = 0;
  __syncthreads();
  u64 reached = 0, edges = 0, depth = 0;
  const i64 threads = (i64)gridDim.x * blockDim.x;
  for (i64 row = (i64)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += threads) {
    const i32 distance = distances[row];
    if (distance >= 0) {
      ++reached;
      edges += offsets[row + 1] - offsets[row];
      if ((u64)distance > depth) depth = distance;
    }
    const u32 bin = (u32)distance;
    const u32 same = __match_any_sync(dbfs::kAll, bin);
    if (bin < bins && dbfs::lane_id() == __ffs(same) - 1) {
      if (bin < shared_bins) {
        atomicAdd(&labelled[bin], (u32)__popc(same));
      } else {
        atomicAdd(&sums[dbfs::kFirstBin + bin], (u64)__popc(same));
      }
    }
  }
  for (u32 step = 16; step; step >>= 1) {
    reached += __shfl_xor_sync(dbfs::kAll, reached, step);
    edges += __shfl_xor_sync(dbfs::kAll, edges, step);
    const u64 other = __shfl_xor_sync(dbfs::kAll, depth, step);
    depth = other > depth ? other : depth;
  }
  if (dbfs::lane_id() == 0 && reached) {
    atomicAdd(&sums[dbfs::kReachedSum], reached);
    atomicAdd(&sums[dbfs::kEdgesSum], edges);
    atomicMax(&sums[dbfs::kDepthSum], depth);
  }
  __syncthreads();
  for (u32 i = threadIdx.x; i < shared_bins; i += blockDim.x) {
    if (labelled[i]) atomicAdd(&sums[dbfs::kFirstBin + i], (u64)labelled[i]);
  }
}
