// Several ranks, each of which has its rows' edges: what they read of each other, and the barrier of all ranks.
//
// A rank keeps a key for every id: of its own rows the distances, of a peer's rows the least one that it has sent. What
// falls below that marks the id as sent. In the next round the owner takes the ids of its rows, and their keys, out of the
// peer's memory. All that peers reach lies in a rank's window, at the same places on all ranks.
//
// At a barrier the last block of a rank writes a record of four words into the flags of each rank, and every block waits
// for its own rank's flags. A word is epoch:32 | payload:32, so that it is complete by itself. A rank is at most one barrier
// ahead of another. A rank that gives up tells its own blocks only: each rank has a flag of its host's, and a deadline.
#pragma once
#include "features/weights/kernels/launch.cuh"

namespace dbfs {

// The same place in the window of a rank.
template <class T>
__device__ __forceinline__ T* of_peer(const Shared& s, T* place, u32 rank) {
  return (T*)((char*)place + s.shifts[rank]);
}

// The id of the rank's first row.
__device__ __forceinline__ u32 first_id(const Weights& a) { return a.rank * (u32)a.rows; }
__device__ __forceinline__ bool is_own(const Weights& a, u32 id) { return !kGang || id - first_id(a) < a.rows; }
__device__ __forceinline__ u32 row_of(const Weights& a, u32 id) { return kGang ? id - first_id(a) : id; }
__device__ __forceinline__ u32 id_of(const Weights& a, u32 row) { return kGang ? first_id(a) + row : row; }

// The place of an id's value; `own` has those of the rank's rows, beside those of the peers'.
template <class T>
__device__ __forceinline__ T* value_of(const Weights& a, T* own, u32 id) {
  return kGang ? own + ((i64)id - (i64)first_id(a)) : own + id;
}

// Write this rank's record into the flags of all ranks, by a warp.
template <class Key>
__device__ __forceinline__ void send_record(const Weights& a, const Thread<Key>& t, const Shared& s) {
  const u32 rank = lane_id() / kFlagWords, field = lane_id() % kFlagWords;
  bool lacks = false;
  for (u32 at = lane_id(); at < a.target_count; at += kLanes) {
    lacks |= load_key((const Key*)a.keys + a.targets[at]) > t.bound;
  }
  lacks = __any_sync(kAll, lacks);
  const u64 near = load_relaxed(word(a, kNearTails, t.round)), pieces = load_relaxed(word(a, kPieceTails, t.round));
  const u64 far = load_relaxed(word(a, kFarTails, t.bucket)), sent = load_relaxed(word(a, kSentTails, t.round));
  const u64 nearest = load_relaxed(word(a, kNearest, t.bucket)), orphans = load_relaxed(word(a, kOrphans, t.round));
  const u32 state = state_of(a, near + sent, pieces, far, orphans) | (lacks ? kLacks : 0);
  const u32 payload = field == 0 ? state : field == 1 ? (u32)sent : (u32)(field == 2 ? nearest : nearest >> 32);
  // Fences add up: this one releases what all blocks have written before they came.
  fence_sys();
  u64* const flags = a.flags + (s.epoch % kFlagSlots) * kLanes + a.rank * kFlagWords + field;
  if (rank < a.ranks) store_relaxed_sys(of_peer(s, flags, rank), (u64)s.epoch << 32 | payload);
}

// Wait for the records of all ranks, and read them and the rank's own sizes, by the first warp of a block.
template <class Key>
__device__ __forceinline__ void read_records(const Weights& a, const Thread<Key>& t, Shared& s) {
  const u32 rank = lane_id() / kFlagWords, field = lane_id() % kFlagWords, epoch = s.epoch;
  const u64* const flag = a.flags + (epoch % kFlagSlots) * kLanes + lane_id();
  bool waits = rank < a.ranks;
  u64 value = 0;
  u32 spins = 0, stop = blockIdx.x ? 0 : s.stop;
  while (!stop && __any_sync(kAll, waits)) {
    if (waits) value = load_acquire_sys(flag);
    waits = waits && (u32)(value >> 32) != epoch;
    if (++spins & 63) continue;
    look(a, s);
    if (lane_id() == 0) stop = blockIdx.x ? (u32)load_relaxed(word(a, kGaveUp)) : s.stop;
    stop = __shfl_sync(kAll, stop, 0);
  }
  const u32 payload = (u32)value, high = __shfl_down_sync(kAll, payload, 1);
  if (rank < a.ranks && field == 1) s.sent[rank] = payload;
  u32 state = field == 0 ? payload : 0;
  u64 nearest = rank < a.ranks && field == 2 ? (u64)high << 32 | payload : kNone;
  for (u32 step = kLanes / 2; step; step >>= 1) {
    state |= __shfl_xor_sync(kAll, state, step);
    const u64 other = __shfl_xor_sync(kAll, nearest, step);
    nearest = other < nearest ? other : nearest;
  }
  if (lane_id()) return;
  if (stop && blockIdx.x == 0) atomicExch(word(a, kGaveUp), (u64)stop);
  read_sizes(a, t, s);
  s.state = state;
  s.nearest = nearest;
  s.answer = stop;
}

// The barrier of all ranks, before the round and the bucket of `t`; the code for a stop if the rank gives up. Where one
// block of each rank makes rounds alone, of those. Without `arrives` the records of the last barrier are read again.
template <class Key>
__device__ __forceinline__ u32 pass_gang(const Weights& a, const Thread<Key>& t, Shared& s, bool arrives = true) {
  __syncthreads();
  if (warp_in_block() == 0) {
    bool last = arrives && t.alone;
    if (arrives && lane_id() == 0) {
      tell_least(a, t, s);
      ++s.epoch;
      __threadfence();
      if (!t.alone) last = (u32)(atomicAdd(word(a, kArrivals), (u64)1) + 1) % gridDim.x == 0;
      __threadfence();
    }
    __syncwarp();
    if (__any_sync(kAll, last)) send_record(a, t, s);
    read_records(a, t, s);
  }
  __syncthreads();
  return (u32)s.answer;
}

// The barrier of all blocks that take part in the round.
template <class Key>
__device__ __forceinline__ u32 pass(const Weights& a, const Thread<Key>& t, Shared& s) {
  if (kGang) return pass_gang(a, t, s);
  return t.alone ? pass_block(a, t, s) : pass_grid(a, t, s);
}

}  // namespace dbfs
