// The barrier that ends every step: for the blocks of one GPU, or for all ranks, which also exchange four words each.
//
// Within a GPU: each block does one atomic on one counter, whose top bit turns with the last arrival (about 1.1 us).
// Across GPUs: the last block to arrive writes a 32-byte record into each peer's flags over NVLink, all records with
// one instruction of one warp. Then every block polls its own GPU's flags, so no second barrier within the GPU is
// needed. A flag word is payload:48 | epoch:16; a word with this barrier's epoch is complete by itself. Flags rotate
// over four slots.
//
// A leader level ends with a barrier of the leader's blocks only. Its peers wait at their next barrier across GPUs.
//
// The first warp of a block waits at the barrier. Meanwhile the other warps report the last level and fetch ahead. Then
// one thread decides the next step (`conclude`), so that no other warp spends instructions or registers on it.
#pragma once
#include "search/cuda/kernels/resident/direction.cuh"
#include "search/cuda/kernels/resident/watch.cuh"

namespace dbfs {

constexpr u32 kTurned = 0x8000u;

// The number that a block adds on arrival. The numbers of all blocks sum up to 2^15.
__device__ __forceinline__ u32 arrival() { return blockIdx.x == 0 ? kTurned - (gridDim.x - 1) : 1u; }

// The barrier that a block comes to next on one GPU: its word, as the block saw it last, and what the block adds.
struct Turn {
  u64* word;
  u64 before;
  u32 arrives;
};

__device__ __forceinline__ Turn next_turn(const Params& a, const Block& b) {
  return {&a.control->barriers[b.round].value, b.barriers[b.round], arrival()};
}

// One GPU; one thread a block. The counter also sums what the blocks queued and kept in a light level, in its upper
// bits, so the polled word holds those sums. A release waits for the block's stores.
__device__ __forceinline__ void arrive(const Turn& turn, u32 queued, u32 kept, bool releases) {
  const u64 add = (u64)queued << 32 | kept << 16 | turn.arrives;
  if (releases) {
    add_release(turn.word, add);
  } else {
    add_relaxed(turn.word, add);
  }
}

// One GPU; the thread that arrived. `sums` is what all blocks have added. False: leave the kernel.
__device__ __forceinline__ bool await_turn(const Params& a, const Block& b, const Turn& turn, u64& sums) {
  if (looks(b) && !keep_waiting(a, b, 0)) return false;
  u64 now;
  u32 spins = 0;
  while (!(((u32)(now = load_acquire(turn.word)) ^ (u32)turn.before) & kTurned)) {
    if ((++spins & 63) == 0 && !keep_waiting(a, b, spins)) return false;
  }
  sums = now - turn.before;
  return true;
}

// Vertices that all blocks queued in a light level, by the sums of its barrier.
__device__ __forceinline__ u32 queued_of(u64 sums) { return (u32)(sums >> 32); }

// Vertices that all blocks queued and kept.
__device__ __forceinline__ u32 found_of(u64 sums) { return queued_of(sums) + (u32)(sums >> 16 & 0xffff); }

// One GPU; the thread that waited.
__device__ __forceinline__ void end_turn(Block& b, const Turn& turn, u64 sums) {
  b.barriers[b.round] = turn.before + sums;
  b.round ^= 1;
}

// Several GPUs; one thread a block. True for the last block to arrive.
__device__ __forceinline__ bool arrive_last(Control* control) {
  const u32 old = add_acq_rel((u32*)&control->gang_barrier.value, arrival());
  return (old ^ (old + arrival())) & kTurned;
}

// The first warp adds the block's totals to the counters of the step.
__device__ __forceinline__ void flush_totals(Block& b, Slot* slot) {
  const u32 lane = lane_id();
  if (lane < kTotalCount && b.totals[lane]) {
    atomicAdd(&slot->lines[kTotals + lane].value, b.totals[lane]);
    b.totals[lane] = 0;
  }
  __syncwarp();
}

// The counter behind one word of the record for `rank`. In word 0 a rank sends itself the length of its queue, and each
// other rank the number of vertices sent to it.
__device__ __forceinline__ u32 line_of(const Params& a, u32 rank, u32 word) {
  if (word == kWordVertices) return kTotals + kDiscovered;
  if (word == kWordEdges) return kTotals + kEdges;
  if (word == kWordTargets) return kTotals + kTargets;
  return rank == a.rank ? (u32)kSmall : kSent + rank;
}

// The word of this rank's record for `rank`. A sent vertex counts among this rank's vertices until its owner contracts
// it; after that the counters of sent vertices are left out.
__device__ __forceinline__ u64 record_for(const Params& a, const Block& b, const Slot* slot, u32 rank, u32 word) {
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

// Several GPUs; the first warp of each block. Lane i polls word i % 4 of rank i / 4. The values end up in `b.values`.
// False: leave the kernel.
__device__ __forceinline__ bool pass_gang(const Params& a, Block& b, Slot* slot) {
  const u32 lane = lane_id(), rank = lane / kFlagWords, word = lane % kFlagWords;
  if (looks(b) && !__all_sync(kAll, lane != 0 || keep_waiting(a, b, 0))) return false;
  // A block's arrival releases its stores to this GPU, and the fence of the last block releases all of them to all
  // ranks. Fences add up (PTX, causality order), so only one block a rank pays for a fence across GPUs.
  const bool last = lane == 0 && arrive_last(a.control);
  const u32 epoch = b.epoch + 1;
  const u64 tag = epoch & 0xffff;
  const u32 at = (epoch % kFlagSlots) * kMaxRanks * kFlagWords;
  if (__any_sync(kAll, last) && rank < a.ranks) {
    const u64 payload = record_for(a, b, slot, rank, word);
    fence_sys();
    store_relaxed_sys(&a.peers[rank].flags[at + a.rank * kFlagWords + word], payload << 16 | tag);
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
  __syncwarp();  // Lane 0 writes the epoch that all lanes read above.
  if (lane == 0) b.epoch = epoch;
  __syncwarp();
  return true;
}

template <Role kRole>
__device__ __forceinline__ void fetch_kept(const Params& a, Block& b);  // expand_light.cuh

// One GPU; the first warp of each block. Waits for this GPU's blocks only, and reads their counters into `b.values`.
// False: leave the kernel.
__device__ __forceinline__ bool pass_alone(const Params& a, Block& b, const Slot* slot) {
  const u32 lane = lane_id();
  u64 sums = 0;
  bool alive = true;
  if (lane == 0) {
    const Turn turn = next_turn(a, b);
    // After a light level other blocks read only the queue at once. Claims have been answered, and labels are read by
    // steps that follow a barrier with a release.
    arrive(turn, b.queued, b.kept, b.queued || !is_light(b.run.step));
    b.queued = 0;
    alive = await_turn(a, b, turn, sums);
    end_turn(b, turn, sums);
  }
  alive = __shfl_sync(kAll, alive, 0);
  if (is_light(b.run.step)) {
    if (lane == 0) {
      b.values[kWordSent] = queued_of(sums);
      b.values[kWordVertices] = found_of(sums);
      b.values[kWordEdges] = b.values[kWordTargets] = 0;
    }
  } else if (lane < kFlagWords) {
    b.values[lane] = record_for(a, b, slot, 0, lane);
  }
  __syncwarp();
  return alive;
}

// End the step that the run is at, and choose the next one. All threads call it. False: leave the kernel.
__device__ __forceinline__ bool end_step(const Params& a, Block& b) {
  if (threadIdx.x == 0) b.noted = b.ended;
  // Read before the block barrier: after it one thread moves the run to its next step.
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
    } else if (kGang) {
      fetch_kept<kAloneRole>(a, b);
    }
  }
  __syncthreads();
  return b.alive;
}

}  // namespace dbfs
