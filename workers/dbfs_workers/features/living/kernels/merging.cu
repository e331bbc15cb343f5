// Updating: merge the sorted keys of an update (binning.cu) with a rank's CSR into a new CSR. The CSR itself stays as it is.
//
// A row's columns ascend by place: by internal id or, in a degree order, by position (`ranks` is then the number of
// ranks, else 0). Each key gets an index among the columns: new columns go before it, and columns to delete start there.
// The indices ascend with the keys, so they cut the columns into pieces, and each piece moves as a whole.
#include "search/cuda/kernels/common/scalars.cuh"

namespace dbfs {

constexpr u32 kThreads = 256;
constexpr u32 kAll = 0xffffffffu;
constexpr i64 kTile = 32 * kThreads;  // columns that a block moves between two searches of all keys

// Layout of `sums`: see Changes in features/living/pages.py.
enum { kEdges, kRefused, kColumns, kSelfLoops, kDuplicates, kRows, kFirstRefused };

__device__ __forceinline__ u32 place_of(u32 column, u32 ranks, u32 n_local) {
  if (!ranks) return column;
  const u32 owner = column / n_local;
  return (column - owner * n_local) * ranks + owner;
}

// The reverse of place_of.
__device__ __forceinline__ u32 column_at(u32 place, u32 ranks, u32 n_local) {
  if (!ranks) return place;
  const u32 row = place / ranks;
  return (place - row * ranks) * n_local + row;
}

// Return the index of the first column in [low, high) with at least this place; `high` if there is none.
__device__ __forceinline__ i64 first_at_least(const u32* columns, i64 low, i64 high, u32 place, u32 ranks,
                                              u32 n_local) {
  while (low < high) {
    const i64 middle = low + (high - low) / 2;
    if (place_of(columns[middle], ranks, n_local) < place) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Return the first entry in [low, high) of ascending values that is at least `wanted`; `high` if there is none.
template <class T>
__device__ __forceinline__ i64 lower_bound(const T* values, i64 low, i64 high, T wanted) {
  while (low < high) {
    const i64 middle = low + (high - low) / 2;
    if (values[middle] < wanted) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

__device__ __forceinline__ void add_up(u64 value, u64* sum) {
  for (u32 step = 16; step; step >>= 1) value += __shfl_xor_sync(kAll, value, step);
  if ((threadIdx.x & 31) == 0 && value) atomicAdd(sum, value);
}

}  // namespace dbfs

// Find each key's index places[count], and the columns that the key adds or removes: amounts[count + 1], behind a 0. Add
// to `sums` what the update does; sums[kFirstRefused] becomes the first key that has no effect. Threads stride over the
// keys. A key costs 8 bytes read, a search in its row, and 16 bytes written.
extern "C" __global__ void __launch_bounds__(dbfs::kThreads)
    dbfs_plan_changes(const u64* keys, i64 count, const i64* offsets, const u32* columns, u32 first_id, u32 ranks,
                      u32 n_local, u32 directed, u32 remove, i64* places, i64* amounts, u64* sums) {
  using namespace dbfs;
  u64 edges = 0, refused = 0, total = 0, self_loops = 0, duplicates = 0, first_refused = ~0ull;
  const i64 threads = (i64)gridDim.x * kThreads, first = (i64)blockIdx.x * kThreads + threadIdx.x;
  if (first == 0) amounts[0] = 0;
  for (i64 i = first; i < count; i += threads) {
    const u64 key = keys[i];
    const u32 row = (u32)(key >> 32), place = (u32)key;
    const bool repeated = i > 0 && keys[i - 1] == key;
    const i64 end = offsets[row + 1];
    i64 at = first_at_least(columns, offsets[row], end, place, ranks, n_local);
    const bool there = at < end && place_of(columns[at], ranks, n_local) == place;
    // Deletion takes all columns that repeat an edge.
    const i64 found = remove && there ? first_at_least(columns, at + 1, end, place + 1, ranks, n_local) - at : 1;
    const bool takes = !repeated && there == (remove != 0);
    const u64 amount = takes ? (u64)found : 0;
    // Behind the columns that the first of equal keys removes: the last key up to a removed column is that first one.
    if (remove && there && repeated) at += found;
    places[i] = at;
    amounts[i + 1] = (i64)amount;
    const u32 column = column_at(place, ranks, n_local);
    const bool counted = directed || first_id + row <= column;
    if (takes) {
      edges += counted;
      total += amount;
      self_loops += first_id + row == column ? amount : 0;
      duplicates += amount - 1;
    } else {
      refused += counted;
      first_refused = (u64)i < first_refused ? (u64)i : first_refused;
    }
  }
  add_up(edges, &sums[kEdges]);
  add_up(refused, &sums[kRefused]);
  add_up(total, &sums[kColumns]);
  add_up(self_loops, &sums[kSelfLoops]);
  add_up(duplicates, &sums[kDuplicates]);
  if (first_refused != ~0ull) atomicMin(&sums[kFirstRefused], first_refused);
}

// Write merged[rows + 1], the row offsets after the update. `before` has the columns that the keys before each one add or
// remove. Add to sums[kRows] the rows that change. A thread takes one row and bisects the keys, as dbfs_row_offsets does.
extern "C" __global__ void __launch_bounds__(dbfs::kThreads)
    dbfs_merged_offsets(const u64* keys, i64 count, const i64* before, const i64* offsets, i64 rows, u32 remove,
                        i64* merged, u64* sums) {
  using namespace dbfs;
  const i64 row = (i64)blockIdx.x * kThreads + threadIdx.x;
  u64 changed = 0;
  if (row <= rows) {
    const i64 first = row == rows ? count : lower_bound(keys, (i64)0, count, (u64)row << 32);
    merged[row] = remove ? offsets[row] - before[first] : offsets[row] + before[first];
    // The row before this one changes if its keys add or remove columns.
    if (row > 0) {
      const i64 start = lower_bound(keys, (i64)0, first, (u64)(row - 1) << 32);
      changed = before[start] != before[first];
    }
  }
  add_up(changed, &sums[kRows]);
}

// Write the columns of the keys that add one to their indices in merged. Threads stride over the keys. A key costs 32
// bytes read and 4 written.
extern "C" __global__ void __launch_bounds__(dbfs::kThreads)
    dbfs_insert_columns(const u64* keys, i64 count, const i64* places, const i64* before, u32 ranks, u32 n_local,
                        u32* merged) {
  using namespace dbfs;
  const i64 threads = (i64)gridDim.x * kThreads;
  for (i64 i = (i64)blockIdx.x * kThreads + threadIdx.x; i < count; i += threads) {
    if (before[i + 1] > before[i]) merged[places[i] + before[i]] = column_at((u32)keys[i], ranks, n_local);
  }
}

// Copy columns[size] to merged, each moved by what the keys up to it add or remove; leave out the removed ones. A block
// takes kTile columns at a time: two of its threads search all keys for those of the tile, and the others bisect among
// these, in L1. A column costs 8 bytes.
extern "C" __global__ void __launch_bounds__(dbfs::kThreads)
    dbfs_move_columns(const u32* columns, i64 size, const i64* places, const i64* before, i64 count, u32 remove,
                      u32* merged) {
  using namespace dbfs;
  __shared__ i64 bounds[2];
  for (i64 tile = (i64)blockIdx.x * kTile; tile < size; tile += (i64)gridDim.x * kTile) {
    const i64 end = tile + kTile < size ? tile + kTile : size;
    if (threadIdx.x < 2) bounds[threadIdx.x] = lower_bound(places, (i64)0, count, threadIdx.x ? end : tile + 1);
    __syncthreads();
    for (i64 i = tile + threadIdx.x; i < end; i += kThreads) {
      // The keys up to column i.
      const i64 keys = lower_bound(places, bounds[0], bounds[1], i + 1);
      const i64 shift = before[keys];
      if (!remove) {
        merged[i + shift] = columns[i];
      } else if (keys == 0 || i >= places[keys - 1] + shift - before[keys - 1]) {
        merged[i - shift] = columns[i];
      }
    }
    __syncthreads();
  }
}
