// Sorting neighbours into a bin for each owner, and contracting bins (Merrill 2012, section 6).
//
// The sort is a radix pass: counts, their prefix sum, and a copy. Each block has the same contiguous range of the edge queue
// in both launches, so that the bins keep the queue's order. Counting reads 4 bytes an edge and a byte of the bitmask, and
// writes a byte; copying reads 5 bytes an edge and writes 4 for each that is kept (9 and 8 with parents). A contraction
// reads a bin where it lies, on this GPU or a peer's: 4 bytes an entry (8 with parents), a byte of the bitmask and a label.
#include "features/lab/kernels/workspace.cuh"

using namespace dbfs;
using namespace dbfs::lab;

namespace {

constexpr u32 kMostOwners = 255;
constexpr u8 kDropped = 255;

// Call `work(valid, place)` for the entries of the block's range of [first, end), one a thread.
template <class Work>
__device__ __forceinline__ void for_each_of_range(u64 first, u64 end, Work work) {
  const u64 tiles = (end - first + kThreads - 1) / kThreads, share = (tiles + gridDim.x - 1) / gridDim.x;
  const u64 begin = first + blockIdx.x * share * kThreads, stop = begin + share * kThreads;
  for (u64 tile = begin; tile < (stop < end ? stop : end); tile += kThreads) {
    work(tile + threadIdx.x < end, tile + threadIdx.x);
  }
}

}  // namespace

// Drop what was visited and duplicates, and count the rest by owner.
extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_count_by_owner(const LabArguments a) {
  __shared__ CullScratch s;
  __shared__ u32 counts[kMostOwners];
  Tally tally;
  for (u32 owner = threadIdx.x; owner < a.owners; owner += kThreads) counts[owner] = 0;
  start_culling(s);
  for_each_of_range(0, a.in_size, [&](bool valid, u64 place) {
    BatchOf<1> batch{{valid ? a.in_ids[place] : 0}, {}, {}, u32(valid)};
    drop_marked(a, batch, tally);
    drop_duplicates(a, batch, s, tally);
    const u32 owner = batch.has(0) ? batch.ids[0] / a.rows : kDropped;
    if (valid) a.flags[place] = u8(owner);
    if (batch.has(0)) atomicAdd(&counts[owner], 1u);
  });
  __syncthreads();
  for (u32 owner = threadIdx.x; owner < a.owners; owner += kThreads) {
    a.tile_sums[owner * gridDim.x + blockIdx.x] = counts[owner];
  }
  tally.add_to(a.counters);
}

// Copy what is left to the places behind the running sums of the counts, as local ids of the owners; parents become
// internal ids.
extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_copy_to_bins(const LabArguments a) {
  __shared__ BlockScratch s;
  __shared__ u64 next[kMostOwners];
  for (u32 owner = threadIdx.x; owner < a.owners; owner += kThreads) {
    const u32 before = owner * gridDim.x + blockIdx.x;
    next[owner] = before ? a.tile_sums[before - 1] : 0;
  }
  __syncthreads();
  for_each_of_range(0, a.in_size, [&](bool valid, u64 place) {
    const u32 mine = valid ? a.flags[place] : kDropped;
    for (u32 owner = 0; owner < a.owners; ++owner) {
      u64 total;
      const u64 at = next[owner] + block_sums(mine == owner, s, total);
      if (mine == owner) {
        a.out_ids[at] = a.in_ids[place] - owner * a.rows;
        if (a.out_parents) a.out_parents[at] = a.first_id + a.in_parents[place];
      }
      __syncthreads();
      if (threadIdx.x == 0) next[owner] += total;
      __syncthreads();
    }
  });
}

// Label what is new in a rank's bin, from before[0] to before[1] of its queue, and append that to the vertex queue. Without
// a bitmask the bin is this rank's own, whose vertices are marked already; then the labels alone say what is new.
extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_contract_bin(const LabArguments a) {
  __shared__ CullScratch s;
  __shared__ BlockScratch block;
  Tally tally;
  start_culling(s);
  for_each_of_range(a.before[0], a.before[1], [&](bool valid, u64 place) {
    BatchOf<1> batch{{valid ? a.in_ids[place] : 0}, {valid && a.in_parents ? a.in_parents[place] : 0}, {}, u32(valid)};
    tally.looked_at += valid;
    if (a.bitmask) drop_marked(a, batch, tally);
    drop_labelled(a, batch, tally);
    drop_duplicates(a, batch, s, tally);
    label_all(a, batch, tally);
    append(a, batch, block);
  });
  tally.add_to(a.counters);
}
