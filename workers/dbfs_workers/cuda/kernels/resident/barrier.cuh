// The barrier that ends every step: of one GPU's blocks, and of all ranks, where each also tells the others four words.
//
// Within a GPU: one atomic a block on one counter, whose top bit turns with the last arrival (about 1.1 us). Across
// GPUs: the last block to arrive writes a 32-byte record into each peer's flags over NVLink, all records with one
// instruction of one warp; then every block polls its own GPU's flags, so that no second barrier within the GPU is
// needed. A flag word is payload:48 | epoch:16; a word with this barrier's epoch is complete by itself. Flags rotate
// over four slots.
//
// A led level ends with the leader's own barrier: its peers wait at their next one across GPUs.
//
// While the first warp of a block is at the barrier, the others report the last level and fetch ahead. Then one thread
// decides what comes next (`conclude`), so that no other warp spends instructions or registers on it.
#pragma once
#include "resident/direction.cuh"
#include "resident/watch.cuh"

namespace dbfs {

constexpr u32 kTurned = 0x8000u;

// What a block adds: the sum of one round is exactly 2^15.
__device__ __forceinline__ u32 arrival() { return blockIdx.x == 0 ? kTurned - (gridDim.x - 1) : 1u; }

// One GPU: adds the arrival and, above it, what this block kept and queued in a light level; so the word polled for
// tells those sums too. False: leave the kernel.
__device__ __forceinline__ bool pass_grid(const Params& a, Block& b, u64& sums) {
  if (looks(b) && !keep_waiting(a, b, 0)) return false;
  u64* word = &a.control->barriers[b.round].value;
  const u64 before = b.barriers[b.round];
  const u64 add = (u64)b.queued << 32 | b.kept << 16 | arrival();
  // A release waits for the block's stores. Of a light level the others read at once only what was queued: claims have
  // been answered, and labels are for steps that come after a barrier with a release.
  if (b.queued || !is_light(b.run.step)) {
    asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(word), "l"(add) : "memory");
  } else {
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(word), "l"(add) : "memory");
  }
  b.queued = 0;
  u64 now;
  u32 spins = 0;
  while (!(((u32)(now = load_acquire(word)) ^ (u32)before) & kTurned)) {
    if ((++spins & 63) == 0 && !keep_waiting(a, b, spins)) return false;
  }
  sums = now - before;
  b.barriers[b.round] = now;
  b.round ^= 1;
  return true;
}

// Several GPUs: true for the last block to arrive.
__device__ __forceinline__ bool arrive_last(Control* control) {
  u32 old;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(&control->gang_barrier.value), "r"(arrival())
               : "memory");
  return (old ^ (old + arrival())) & kTurned;
}

__device__ __forceinline__ void flush_totals(Block& b, Slot* slot) {
  const u32 lane = lane_id();
  if (lane < kTotalCount && b.totals[lane]) {
    atomicAdd(&slot->lines[kTotals + lane].value, b.totals[lane]);
    b.totals[lane] = 0;
  }
  __syncwarp();
}

// The counter that word 0 to 3 of a rank's record is read from. A rank tells itself the length of its queue in word 0,
// and every other how many vertices it was sent.
__device__ __forceinline__ u32 line_of(const Params& a, u32 rank, u32 word) {
  if (word == kWordVertices) return kTotals + kDiscovered;
  if (word == kWordEdges) return kTotals + kEdges;
  if (word == kWordTargets) return kTotals + kTargets;
  return rank == a.rank ? (u32)kSmall : kSent + rank;
}

// A vertex sent counts among the vertices until its owner has contracted it: then the counters were read before.
__device__ __forceinline__ u64 tell(const Params& a, const Block& b, const Slot* slot, u32 rank, u32 word) {
  if (b.run.step == Step::kHandOver) {
    if (a.rank != kLeader) return 0;
    if (word == kWordLeaderVertices) return load_relaxed(&slot->lines[kSmall].value);
    return word == kWordLeaderLevel ? b.run.level : word == kWordLeaderExpanded ? b.run.expanded : 0;
  }
  if (b.run.step == Step::kScan && word == kWordEdges) return load_relaxed(&slot->lines[kTotals + kInspected].value);
  const bool with_sent = step_sends(b.run.step);
  u64 value = load_relaxed(&slot->lines[line_of(a, rank, word)].value);
  if (kGang && word == kWordSent && rank != a.rank && !with_sent) value = 0;
  if (kGang && word == kWordVertices && with_sent) {
#pragma unroll
    for (u32 to = 0; to < kMaxRanks; ++to) value += load_relaxed(&slot->lines[kSent + to].value);
  }
  return value;
}

__device__ __forceinline__ bool pass_gang(const Params& a, Block& b, Slot* slot) {
  const u32 lane = lane_id(), rank = lane / kFlagWords, word = lane % kFlagWords;
  if (looks(b) && !__all_sync(kAll, lane != 0 || keep_waiting(a, b, 0))) return false;
  // A block's stores to its peers are released by its arrival here, and by the last block's fence to all ranks: fences
  // add up (PTX, causality order), so that only one block a rank pays for one across GPUs.
  const bool last = lane == 0 && arrive_last(a.control);
  const u32 epoch = b.epoch + 1;
  const u64 tag = epoch & 0xffff;
  const u32 at = (epoch % kFlagSlots) * kMaxRanks * kFlagWords;
  if (__any_sync(kAll, last) && rank < a.ranks) {
    const u64 told = tell(a, b, slot, rank, word);
    fence_sys();
    store_relaxed_sys(&a.peers[rank].flags[at + a.rank * kFlagWords + word], told << 16 | tag);
  }
  const u64* flag = &a.peers[a.rank].flags[at + lane];
  u64 value = 0;
  u32 spins = 0;
  bool waiting = rank < a.ranks;
  while (__any_sync(kAll, waiting)) {
    if (waiting) {
      value = load_acquire_sys(flag);
      waiting = (value & 0xffff) != tag;
    }
    if ((++spins & 63) == 0 && !__all_sync(kAll, lane != 0 || keep_waiting(a, b, spins))) return false;
  }
  b.values[lane] = value >> 16;
  __syncwarp();  // all lanes have read the epoch
  if (lane == 0) b.epoch = epoch;
  __syncwarp();
  return true;
}

template <Role kRole>
__device__ __forceinline__ void fetch_kept(const Params& a, Block& b);  // expand_light.cuh

// The first warp waits for this GPU's blocks only, and learns what they count.
__device__ __forceinline__ bool pass_alone(const Params& a, Block& b, const Slot* slot) {
  const u32 lane = lane_id();
  u64 sums = 0;
  bool alive = true;
  if (lane == 0) alive = pass_grid(a, b, sums);
  alive = __shfl_sync(kAll, alive, 0);
  if (is_light(b.run.step)) {
    if (lane == 0) {
      b.values[kWordSent] = sums >> 32;
      b.values[kWordVertices] = (sums >> 32) + (sums >> 16 & 0xffff);
      b.values[kWordEdges] = b.values[kWordTargets] = 0;
    }
  } else if (lane < kFlagWords) {
    b.values[lane] = tell(a, b, slot, 0, lane);
  }
  __syncwarp();
  return alive;
}

// End the step b.run is at, and begin the next. False: leave the kernel.
__device__ __forceinline__ bool end_step(const Params& a, Block& b) {
  if (threadIdx.x == 0) b.noted = b.ended;
  // Looked at before one thread moves the run on.
  const Role role = role_of(b.run.step);
  __syncthreads();
  if (threadIdx.x < kLanes) {
    Slot* slot = step_slot(a, b.run);
    flush_totals(b, slot);
    const bool alive = role == Role::kPeer ? pass_gang(a, b, slot) : pass_alone(a, b, slot);
    if (lane_id() == 0) {
      b.alive = alive;
      if (alive) {
        b.run.chunks = a.max_degree > kLargeDegree ? (u32)load_relaxed(&slot->lines[kChunks].value) : 0;
        conclude(a, b);
      }
    }
  } else {
    report_level(a, b);
    if (role == Role::kPeer) {
      fetch_kept<Role::kPeer>(a, b);
    } else {
      fetch_kept<kAloneRole>(a, b);
    }
  }
  __syncthreads();
  return b.alive;
}

}  // namespace dbfs
