// Contraction (Merrill 2012): label and queue the vertices that were discovered elsewhere.
//
// After a sparse level: the bins that peers sent, since a rank has labelled its own discoveries. When light levels end
// (Step::kSettle): also this rank's own pending queue, and the vertices that its blocks kept. A thread takes a vertex,
// claims it in `known` and marks it visited. Reads 4 bytes a vertex (8 with parents) of this rank's own memory, where
// the sender wrote them.
#pragma once
#include "search/cuda/kernels/resident/barrier.cuh"

namespace dbfs {

// Label and queue one bin: rows and parents of `count` vertices of this rank.
__device__ __forceinline__ void contract_bin(const Params& a, Block& b, const u32* rows, const u32* row_parents,
                                             u32 count, const Output& to) {
  const u32 first_id = a.rank * a.n_local;
  stage_items(a, b, to, count, [&](u32 i, u32& id, u32& parent) {
    const u32 row = load_shared_by_gang(&rows[i]);
    id = first_id + row;
    if (kPredecessors) parent = load_shared_by_gang(&row_parents[i]);
    if (!claim(a.known, row)) return false;
    mark_visited(a, row);
    return true;
  });
}

// The bins of parity `to.parity`. With `settle` also this rank's pending queue and the kept vertices.
__device__ __forceinline__ void contract(const Params& a, Block& b, const Output& to, bool settle) {
  const Peer& own = a.peers[a.rank];
  for (u32 rank = 0; rank < a.ranks; ++rank) {
    const bool mine = rank == a.rank;
    if (mine && !settle) continue;
    const u32* rows = mine ? a.queues[to.queue ^ 1] : own.inbox + inbox_offset(a, to.parity, rank);
    const u32* parents = mine ? a.queue_parents[to.queue ^ 1] : own.inbox_parents + inbox_offset(a, to.parity, rank);
    contract_bin(a, b, rows, parents, mine ? b.run.small : (u32)b.values[rank * kFlagWords + kWordSent], to);
  }
  if (settle) {
    bool won[kSparseUnroll] = {};
    u32 ids[kSparseUnroll] = {}, parents[kSparseUnroll] = {};
    if (threadIdx.x < b.kept) {
      const u32 place = kept_place(b.run.level) + threadIdx.x;
      const u32 row = b.keep_ids[place];
      ids[0] = a.rank * a.n_local + row;
      if (kPredecessors) parents[0] = b.keep_parents[place];
      // A rank alone finds each vertex once, and has labelled those that it kept.
      won[0] = !kGang || claim(a.known, row);
    }
    if (__syncthreads_or(stage(b, won, ids, parents))) {
      publish(a, b, to);
      __syncthreads();
    }
    if (threadIdx.x == 0) b.kept = 0;
  }
  __syncthreads();
  if (b.staged) publish(a, b, to);
}

}  // namespace dbfs
