// Led levels' end: the leader leaves the frontier where all ranks find it, and each takes its part.
//
// A led level is a light one that the leader runs for all ranks: it finds lists and labels with their owners, has a
// bitmap of all vertices as every rank does, and waits for its own blocks only. What is queued is internal ids, in
// its window. Its peers know nothing of these levels: they take its bitmap with the frontier. Reads n / 8 bytes and 4 a
// vertex (8 with predecessors) over NVLink.
#pragma once
#include "resident/barrier.cuh"

namespace dbfs {

__device__ __forceinline__ u64 leader_queue_offset(const Params& a, u32 queue) { return (u64)queue * a.leader_capacity; }

// The vertices that the leader's blocks kept go where the others are.
__device__ __forceinline__ void hand_over(const Params& a, Block& b, Slot* slot) {
  const u32 kept = b.kept;
  if (a.rank != kLeader || !kept) return;
  if (threadIdx.x == 0) b.base[0] = atomicAdd(&slot->lines[kSmall].value, (u64)kept);
  __syncthreads();
  if (threadIdx.x < kept) {
    const u64 at = leader_queue_offset(a, b.run.queue) + b.base[0] + threadIdx.x;
    a.peers[kLeader].leader_queue[at] = b.keep_ids[threadIdx.x];
    if (kPredecessors) a.peers[kLeader].leader_parents[at] = b.keep_parents[threadIdx.x];
  }
  if (threadIdx.x == 0) b.kept = 0;
}

// The leader's bitmap holds what it labelled and what it queued; nothing is queued twice.
__device__ __forceinline__ void take_over(const Params& a, Block& b, const Output& to) {
  const Peer &own = a.peers[a.rank], &leader = a.peers[kLeader];
  if (a.rank != kLeader) {
    if (threadIdx.x == 0) {
      b.ended = b.run.level;
      b.level_began = clock64();
    }
    if (warp_in_block() == kWarps - 1 && lane_id() == 0) b.reported = b.run.level;
    // The sources were counted here, and the report of their level, which clears its counters, is the leader's.
    if (blockIdx.x == 0 && threadIdx.x < kTotals + kTotalCount) level_slot(a, 0)->lines[threadIdx.x].value = 0;
  }
  const u32 thread = blockIdx.x * kThreads + threadIdx.x, threads = gridDim.x * kThreads;
  for (u32 word = thread; word < a.ranks * a.words_local; word += threads) {
    const u32 bits = load_shared_by_gang(&leader.visited[word]);
    if (a.rank != kLeader) own.visited[word] = bits;
    if (word / a.words_local == a.rank) a.known[word - a.rank * a.words_local] |= bits;
  }
  const u64 queue = leader_queue_offset(a, b.run.queue);
  stage_items(a, b, to, b.run.small, [&](u32 i, u32& id, u32& parent) {
    id = load_shared_by_gang(&leader.leader_queue[queue + i]);
    if (id / a.n_local != a.rank) return false;
    if (kPredecessors) parent = load_shared_by_gang(&leader.leader_parents[queue + i]);
    return true;
  });
  __syncthreads();
  if (b.staged) publish(a, b, to);
}

}  // namespace dbfs
