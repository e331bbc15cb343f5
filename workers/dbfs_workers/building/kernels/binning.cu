// Building, first part: count edges and bin them by owner. Threads stride over the edges of one piece.
//
// A directed edge is one 64-bit key. Its high half is the source's row on the owner; its low half is the target's
// internal id or, in a degree order, the target's position. The sorted keys are the rank's CSR. Keys within a bin have
// no order. A band has only the edges of some rows, first_row .. end_row - 1 of every owner: a graph that does not fit
// at once is built in bands.
#include "search/cuda/kernels/common/scalars.cuh"

namespace dbfs {

constexpr u32 kThreads = 256;
constexpr u32 kMaxRanks = 256;  // building.py refuses more; each thread of a block clears one rank's counter
constexpr u32 kAll = 0xffffffffu;
constexpr u32 kNone = 0xffffffffu;  // never a vertex
constexpr u32 kEdgesAThread = 8;
constexpr u32 kTile = kThreads * kEdgesAThread;

// Return whether both ids are in 0..n-1; if not, lower `bad` to the edge's number.
__device__ __forceinline__ bool inside(i64 source, i64 target, u64 n, i64 number, u64* bad) {
  if ((u64)source < n && (u64)target < n) return true;
  atomicMin(bad, (u64)number);
  return false;
}

// Return the owner of a directed edge's source; kMaxRanks if the source's row is not in this band.
__device__ __forceinline__ u32 owner_of(u32 source, u32 ranks, u32 first_row, u32 end_row) {
  const u32 row = source / ranks;
  return row >= first_row && row < end_row ? source - row * ranks : kMaxRanks;
}

// Reserve a place in its owner's bin for each lane of a warp; lanes with owner kMaxRanks get none. All lanes must call.
__device__ __forceinline__ u32 reserve(u32* taken, u32 owner) {
  const u32 lane = threadIdx.x & 31;
  const u32 same = __match_any_sync(kAll, owner);
  const u32 leader = __ffs(same) - 1;
  u32 base = 0;
  if (lane == leader && owner < kMaxRanks) base = atomicAdd(&taken[owner], (u32)__popc(same));
  return __shfl_sync(kAll, base, leader) + __popc(same & ((1u << lane) - 1));
}

}  // namespace dbfs

// Add each edge to degrees[n] of both its ends; if `symmetrise`, a self-loop counts once. A thread takes one edge at a
// time: it reads 16 bytes, and does two atomics in L2 (in memory if the degrees don't fit L2).
extern "C" __global__ void __launch_bounds__(dbfs::kThreads)
    dbfs_count_degrees(const i64* sources, const i64* targets, i64 count, u64 n, u32 symmetrise, u64* degrees,
                       u64* bad) {
  const i64 threads = (i64)gridDim.x * dbfs::kThreads;
  for (i64 i = (i64)blockIdx.x * dbfs::kThreads + threadIdx.x; i < count; i += threads) {
    const i64 source = sources[i], target = targets[i];
    if (!dbfs::inside(source, target, n, i, bad)) continue;
    atomicAdd(&degrees[source], 1ull);
    if (!(symmetrise && source == target)) atomicAdd(&degrees[target], 1ull);
  }
}

// Add to counts[ranks] each owner's number of directed edges. A block adds up in shared memory first. Reads 16 bytes an
// edge and, in a degree order, two positions of 4 bytes (position is null in the order given).
extern "C" __global__ void __launch_bounds__(dbfs::kThreads)
    dbfs_count_owners(const i64* sources, const i64* targets, i64 count, u64 n, const u32* position, u32 ranks,
                      u32 symmetrise, u32 first_row, u32 end_row, u64* counts, u64* bad) {
  using namespace dbfs;
  __shared__ u32 found[kMaxRanks];
  if (threadIdx.x < kMaxRanks) found[threadIdx.x] = 0;
  __syncthreads();
  const i64 threads = (i64)gridDim.x * kThreads;
  // The loop's bound is the same for all lanes of a warp: the votes below need whole warps.
  for (i64 first = (i64)blockIdx.x * kThreads; first < count; first += threads) {
    const i64 i = first + threadIdx.x;
    u32 owner = kMaxRanks, reverse = kMaxRanks;
    if (i < count && inside(sources[i], targets[i], n, i, bad)) {
      const u32 source = (u32)sources[i], target = (u32)targets[i];
      owner = owner_of(position ? position[source] : source, ranks, first_row, end_row);
      if (symmetrise && source != target)
        reverse = owner_of(position ? position[target] : target, ranks, first_row, end_row);
    }
    for (u32 rank = 0; rank < ranks; ++rank) {
      const u32 here = __popc(__ballot_sync(kAll, owner == rank)) + __popc(__ballot_sync(kAll, reverse == rank));
      if ((threadIdx.x & 31) == 0 && here) atomicAdd(&found[rank], here);
    }
  }
  __syncthreads();
  if (threadIdx.x < ranks && found[threadIdx.x]) atomicAdd(&counts[threadIdx.x], (u64)found[threadIdx.x]);
}

// Write each directed edge's key into its owner's bin; cursors[ranks] begin at the bins' starts. A block takes kTile
// edges at a time: it numbers their keys by owner in shared memory, reserves the places of each owner's keys with one
// atomic, and writes the keys. Reads 16 bytes an edge, writes 8 bytes a directed edge. dbfs_count_owners has checked
// the ids.
extern "C" __global__ void __launch_bounds__(dbfs::kThreads)
    dbfs_bin_edges(const i64* sources, const i64* targets, i64 count, const u32* position, u32 ranks, u32 n_local,
                   u32 symmetrise, u32 first_row, u32 end_row, u64* cursors, u64* keys) {
  using namespace dbfs;
  __shared__ u32 taken[kMaxRanks];
  __shared__ u64 base[kMaxRanks];
  for (i64 first = (i64)blockIdx.x * kTile; first < count; first += (i64)gridDim.x * kTile) {
    if (threadIdx.x < kMaxRanks) taken[threadIdx.x] = 0;
    __syncthreads();
    u32 source[kEdgesAThread], target[kEdgesAThread], place[kEdgesAThread], back[kEdgesAThread];
    u32 from[kEdgesAThread], to[kEdgesAThread];  // owners of the edge and of its reverse; kMaxRanks for none
#pragma unroll
    for (u32 j = 0; j < kEdgesAThread; ++j) {
      const i64 i = first + j * kThreads + threadIdx.x;
      const bool there = i < count;
      source[j] = there ? (u32)sources[i] : kNone;
      target[j] = there ? (u32)targets[i] : kNone;
    }
#pragma unroll
    for (u32 j = 0; j < kEdgesAThread; ++j) {
      const bool there = source[j] != kNone;
      if (position && there) {
        source[j] = position[source[j]];
        target[j] = position[target[j]];
      }
      from[j] = there ? owner_of(source[j], ranks, first_row, end_row) : kMaxRanks;
      to[j] = there && symmetrise && source[j] != target[j] ? owner_of(target[j], ranks, first_row, end_row) : kMaxRanks;
      place[j] = reserve(taken, from[j]);
      back[j] = reserve(taken, to[j]);
    }
    __syncthreads();
    if (threadIdx.x < ranks) base[threadIdx.x] = atomicAdd(&cursors[threadIdx.x], (u64)taken[threadIdx.x]);
    __syncthreads();
#pragma unroll
    for (u32 j = 0; j < kEdgesAThread; ++j) {
      const u32 row = source[j] / ranks, other_row = target[j] / ranks;
      if (from[j] < kMaxRanks) {
        const u32 column = position ? target[j] : (target[j] - other_row * ranks) * n_local + other_row;
        keys[base[from[j]] + place[j]] = (u64)row << 32 | column;
      }
      if (to[j] < kMaxRanks) {
        const u32 column = position ? source[j] : (source[j] - row * ranks) * n_local + row;
        keys[base[to[j]] + back[j]] = (u64)other_row << 32 | column;
      }
    }
    __syncthreads();
  }
}
