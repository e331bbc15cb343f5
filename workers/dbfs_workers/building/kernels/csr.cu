// Building, second part: make a rank's CSR of its sorted keys (binning.cu).
#include "search/cuda/kernels/common/scalars.cuh"

namespace dbfs {

constexpr u32 kThreads = 256;
constexpr u32 kAll = 0xffffffffu;

}  // namespace dbfs

// Write offsets[rows + 1] of the rows from first_row on. A thread takes one row, and bisects the keys for the row's
// first one; neighbouring rows read mostly the same keys, from L2. Writes 8 bytes a row.
extern "C" __global__ void __launch_bounds__(dbfs::kThreads)
    dbfs_row_offsets(const u64* keys, i64 count, i64 first_row, i64 rows, i64* offsets) {
  const i64 row = (i64)blockIdx.x * dbfs::kThreads + threadIdx.x;
  if (row > rows) return;
  const u64 wanted = (u64)(first_row + row) << 32;
  i64 low = row == rows ? count : 0, high = count;
  while (low < high) {
    const i64 middle = low + (high - low) / 2;
    if (keys[middle] < wanted) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  offsets[row] = low;
}

// Write columns[count], the internal id of each key's target; with by_position the key holds the target's position. Add
// to sums[2] the self-loops, and the keys that equal the key before. Threads stride over the keys. A key costs 8 bytes
// read (the key before is in L1) and 4 written.
extern "C" __global__ void __launch_bounds__(dbfs::kThreads)
    dbfs_columns(const u64* keys, i64 count, u32 rank, u32 ranks, u32 n_local, u32 by_position, u32* columns,
                 u64* sums) {
  u64 self_loops = 0, duplicates = 0;
  const i64 threads = (i64)gridDim.x * dbfs::kThreads;
  for (i64 i = (i64)blockIdx.x * dbfs::kThreads + threadIdx.x; i < count; i += threads) {
    const u64 key = keys[i];
    const u32 row = (u32)(key >> 32), target = (u32)key;
    self_loops += target == (by_position ? row * ranks + rank : rank * n_local + row);
    duplicates += i > 0 && keys[i - 1] == key;
    columns[i] = by_position ? target % ranks * n_local + target / ranks : target;
  }
  for (u32 step = 16; step; step >>= 1) {
    self_loops += __shfl_xor_sync(dbfs::kAll, self_loops, step);
    duplicates += __shfl_xor_sync(dbfs::kAll, duplicates, step);
  }
  if ((threadIdx.x & 31) == 0) {
    if (self_loops) atomicAdd(&sums[0], self_loops);
    if (duplicates) atomicAdd(&sums[1], duplicates);
  }
}
