// Giving up a wait: an abort flag that the host sets, a deadline, and a word with the reason.
//
// One thread a block watches while it spins, and once every kLevelsALook levels. Only block 0 reads the host's flag,
// since a read over PCIe takes about 1 us. It copies an abort to `control->stop` in this GPU's memory, which all blocks
// read. The first block to give up writes the rank, level and step. A kernel does not stop its peers: their memory may
// be unmapped. Each peer has its own flag and deadline.
#pragma once
#include "search/cuda/kernels/resident/block.cuh"

namespace dbfs {

// The status word (layout.py).
__device__ __forceinline__ u64 pack_status(const Params& a, Reason reason, const Run& run) {
  return (u64)reason | (u64)a.rank << kStatusRank | (u64)run.step << kStatusStep | (u64)run.level << kStatusLevel;
}

// Stop this rank's blocks, and write the status if no block has done so.
__device__ __noinline__ void give_up(const Params& a, Reason reason, const Run& run) {
  const u64 status = pack_status(a, reason, run);
  if (atomicCAS(&a.control->stop.value, 0ull, status) == 0) {
    store_relaxed_sys(&a.host->status, status);
    __threadfence_system();
  }
}

// The spinning thread calls it every 64 spins. False: the block must leave the kernel.
__device__ __noinline__ bool keep_waiting(const Params& a, const Block& b, u32 spins) {
  if (load_relaxed(&a.control->stop.value)) return false;
  if (now_ns() > b.deadline) {
    give_up(a, Reason::kDeadline, b.run);
    return false;
  }
  if (blockIdx.x == 0 && (spins & 1023) == 0 && load_relaxed_sys(&a.host->abort)) {
    give_up(a, Reason::kAborted, b.run);
    return false;
  }
  return true;
}

// A run whose waits are all short would never look at the flag. So one level in kLevelsALook looks in any case: a block
// that leaves holds the others at this barrier, or at the next one, until they leave as well.
constexpr u32 kLevelsALook = 128;

__device__ __forceinline__ bool looks(const Block& b) { return b.run.level % kLevelsALook == kLevelsALook - 1; }

}  // namespace dbfs
