// Leader levels and their end: the leader publishes the frontier, and each rank takes its part.
//
// A leader level is a light level that rank kLeader runs for all ranks. The leader reads adjacency lists from their
// owners, writes labels to the owners, keeps a bitmap of all vertices as every rank does, and waits for its own blocks
// only. Its queue holds internal ids and lies in its window. The peers see none of these levels: afterwards they copy
// the leader's bitmap and filter its queue. The hand-over reads n / 8 bytes and 4 bytes a vertex (8 with predecessors)
// over NVLink.
#pragma once
#include "search/cuda/kernels/resident/barrier.cuh"

namespace dbfs {

// Offset of one of the leader's two queues in its window.
__device__ __forceinline__ u64 leader_queue_offset(const Params& a, u32 queue) {
  return (u64)queue * a.leader_capacity;
}

// Step::kHandOver, on the leader: each block appends the vertices that it kept to the leader's queue. A thread a
// vertex.
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

// Step::kTakeOver, on every rank: copy the leader's bitmap, which has all vertices labelled or queued so far, and queue
// this rank's vertices of the leader's queue. No vertex is in that queue twice.
__device__ __forceinline__ void take_over(const Params& a, Block& b, const Output& to) {
  const Peer &own = a.peers[a.rank], &leader = a.peers[kLeader];
  if (a.rank != kLeader) {
    if (threadIdx.x == 0) {
      b.ended = b.run.level;
      b.level_began = clock64();
    }
    if (warp_in_block() == kWarps - 1 && lane_id() == 0) b.reported = b.run.level;
    // This rank counted its sources. The report of a level clears its counters, but the leader reports level 0.
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
