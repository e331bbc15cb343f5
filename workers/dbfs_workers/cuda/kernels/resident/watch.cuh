// Leaving a wait: an abort flag that the host sets, a deadline, and the word that tells why.
//
// One thread a block watches while it spins, and every so many levels. Only block 0 asks the host (a read over PCIe
// takes about 1 us); what it learns goes to `control->stop` in this GPU's memory, where every other block finds it. The
// first to give up names the rank, level and step. Peers are not told from here: their memory may be gone. They have
// their own flag and deadline.
#pragma once
#include "resident/block.cuh"

namespace dbfs {

__device__ __forceinline__ u64 pack_status(const Params& a, Reason reason, const Run& run) {
  return (u64)reason | (u64)a.rank << kStatusRank | (u64)run.step << kStatusStep | (u64)run.level << kStatusLevel;
}

__device__ __noinline__ void give_up(const Params& a, Reason reason, const Run& run) {
  const u64 status = pack_status(a, reason, run);
  if (atomicCAS(&a.control->stop.value, 0ull, status) == 0) {
    store_relaxed_sys(&a.host->status, status);
    __threadfence_system();
  }
}

// Called every so many spins by the thread that spins; false when the block must leave the kernel.
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

// A run whose waits are all short would never look. One level in so many looks before it arrives, so that a block which
// leaves here holds all others at the barrier until they leave, too.
constexpr u32 kLevelsALook = 128;

__device__ __forceinline__ bool looks(const Block& b) { return b.run.level % kLevelsALook == kLevelsALook - 1; }

}  // namespace dbfs
