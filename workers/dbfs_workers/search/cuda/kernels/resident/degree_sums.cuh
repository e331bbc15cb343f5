// Sums of degrees, counted by the steps that label rows: for the counts of the result, without a pass over the labels
// after the run. Only where most groups of rows have one degree: elsewhere a row costs 16 bytes of offsets.
#pragma once
#include "search/cuda/kernels/common/groups.cuh"
#include "search/cuda/kernels/resident/queue.cuh"

namespace dbfs {

// Does this run count? If not, `common` is null, and the labels are added up after the run (summary.cu).
__device__ __forceinline__ bool counts_degrees(const Params& a) { return a.common; }

// The common degree of a word's rows, or kMixed. Fetched before the rows are searched: the wait at the end of each word
// took 11 us of a traversal of scale 24.
__device__ __forceinline__ u32 common_degree(const Params& a, bool on, u32 word) {
  return on && counts_degrees(a) ? __ldg(&a.common[word / (kGroupRows / kLanes)]) : 0;
}

// This lane's part of the sum of the degrees of the rows whose bits are set, a word a lane. All lanes call it. Reads 16
// bytes a row of a mixed group, and nothing of others.
__device__ __forceinline__ u64 degrees_of(const Params& a, u32 own_word, u32 bits, u32 common) {
  u64 edges = common == kMixed ? 0 : (u64)common * __popc(bits);
  for (u32 left = __ballot_sync(kAll, common == kMixed && bits); left; left &= left - 1) {
    const u32 j = __ffs(left) - 1;
    const u32 row = __shfl_sync(kAll, own_word, j) * kLanes + lane_id();
    if (has_bit(__shfl_sync(kAll, bits, j), lane_id())) edges += degree_of(a.out, row).count;
  }
  return edges;
}

}  // namespace dbfs
