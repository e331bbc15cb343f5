// Sorting vertices into a bin for each owner, by a radix pass of two launches (Merrill 2012, section 6): each block counts
// the vertices of its range by owner, a prefix sum of the counts gives it its places, and it copies its vertices there.
//
// A block has the same contiguous range in both launches, so that a bin keeps the order of the input. Nothing is atomic: of
// the lanes that hold vertices of one owner the first one counts, in its warp's own row. Between the launches the host
// turns the counts, [owners][blocks], into running sums. Counting writes a byte a vertex, which copying reads.
#pragma once
#include "search/cuda/kernels/common/scalars.cuh"

namespace dbfs {

// An owner is a byte; one value says that a vertex was dropped. MOST_OWNERS of search/cuda/owner_bins.py.
constexpr u32 kMostOwners = 255;
constexpr u8 kDropped = 255;

// The shared memory of a block of at most kWarps warps that counts: for each of them a row by owner.
template <u32 kWarps>
struct OwnerCounts {
  u32 of_warp[kWarps][kMostOwners];
};

// The shared memory of one that copies, and the places that come next.
template <u32 kWarps>
struct OwnerPlaces {
  u64 of_warp[kWarps][kMostOwners];
  u64 next[kMostOwners];
};

// Call `work(valid, place)` for the entries of the block's range of [first, end), one a thread.
template <class Work>
__device__ __forceinline__ void for_each_of_range(u64 first, u64 end, Work work) {
  const u64 tiles = (end - first + blockDim.x - 1) / blockDim.x, share = (tiles + gridDim.x - 1) / gridDim.x;
  const u64 begin = first + blockIdx.x * share * blockDim.x, stop = begin + share * blockDim.x;
  for (u64 tile = begin; tile < (stop < end ? stop : end); tile += blockDim.x) {
    work(tile + threadIdx.x < end, tile + threadIdx.x);
  }
}

// The lanes that hold a vertex of the same owner, and how many of them are below this one. All lanes call it.
struct SameOwner {
  u32 lanes, below;

  __device__ __forceinline__ explicit SameOwner(u32 owner)
      : lanes(__match_any_sync(0xffffffffu, owner)), below(__popc(lanes & ((1u << threadIdx.x % 32) - 1))) {}

  __device__ __forceinline__ bool counts(u32 owner) const { return owner != kDropped && below == 0; }
};

// Count by owner those of `size` vertices, `rows` of each owner, for which `passes(valid, vertex)`, which all threads call.
// Writes each vertex's owner, or kDropped, and the block's counts.
template <u32 kWarps, class Passes>
__device__ __forceinline__ void count_by_owner(const u32* vertices, u64 size, u32 rows, u32 owners,
                                               OwnerCounts<kWarps>& s, u8* owner_of, u64* counts, Passes passes) {
  for (u32 owner = threadIdx.x; owner < owners; owner += blockDim.x) {
    for (u32 warp = 0; warp < kWarps; ++warp) s.of_warp[warp][owner] = 0;
  }
  __syncthreads();
  for_each_of_range(0, size, [&](bool valid, u64 place) {
    const u32 vertex = valid ? vertices[place] : 0;
    const u32 owner = passes(valid, vertex) ? vertex / rows : kDropped;
    if (valid) owner_of[place] = u8(owner);
    const SameOwner same(owner);
    if (same.counts(owner)) s.of_warp[threadIdx.x / 32][owner] += __popc(same.lanes);
    __syncwarp();
  });
  __syncthreads();
  for (u32 owner = threadIdx.x; owner < owners; owner += blockDim.x) {
    u64 sum = 0;
    for (u32 warp = 0; warp < kWarps; ++warp) sum += s.of_warp[warp][owner];
    counts[owner * gridDim.x + blockIdx.x] = sum;
  }
}

// Call `copy(from, to, owner)` for each vertex that was counted: its place among all vertices, and its place in the bins,
// which lie one behind another. `ends` are the running sums of the counts.
template <u32 kWarps, class Copy>
__device__ __forceinline__ void copy_to_bins(u64 size, u32 owners, const u8* owner_of, const u64* ends,
                                             OwnerPlaces<kWarps>& s, Copy copy) {
  for (u32 owner = threadIdx.x; owner < owners; owner += blockDim.x) {
    const u32 before = owner * gridDim.x + blockIdx.x;
    s.next[owner] = before ? ends[before - 1] : 0;
    for (u32 warp = 0; warp < kWarps; ++warp) s.of_warp[warp][owner] = 0;
  }
  __syncthreads();
  for_each_of_range(0, size, [&](bool valid, u64 place) {
    const u32 mine = valid ? owner_of[place] : kDropped;
    const SameOwner same(mine);
    u64* const row = s.of_warp[threadIdx.x / 32];
    if (same.counts(mine)) row[mine] = __popc(same.lanes);
    __syncthreads();
    // Counts become places: those of the warps of one owner one behind another.
    for (u32 owner = threadIdx.x; owner < owners; owner += blockDim.x) {
      for (u32 warp = 0; warp < kWarps; ++warp) {
        const u64 count = s.of_warp[warp][owner];
        if (!count) continue;
        s.of_warp[warp][owner] = s.next[owner];
        s.next[owner] += count;
      }
    }
    __syncthreads();
    if (mine != kDropped) copy(place, row[mine] + same.below, mine);
    __syncwarp();
    if (same.counts(mine)) row[mine] = 0;
    __syncwarp();
  });
}

}  // namespace dbfs
