// Queues of the next frontier, and the bins for other ranks.
//
// A discovered vertex of this rank goes to the vertex queue. One with more than kLargeDegree neighbours goes to the
// chunk queue instead, once for every kChunkEdges of its list. So the next expansion starts on even pieces, with no
// pass and no barrier to cut them. A vertex of another rank goes to that rank's inbox, over NVLink.
//
// There are two ways in. A block stages its discoveries and publishes the stage (sparse levels), or a warp enqueues the
// set bits of 32 bitmap words (after dense and bottom-up levels). Both reserve room with few atomics, and both sum the
// degrees, which decide the direction. Reads 16 bytes of row offsets a vertex; writes 4 (queue) + 4 (distance) + 4
// (parent).
#pragma once
#include "search/cuda/kernels/resident/block.cuh"

namespace dbfs {

// An adjacency list: its first place in the columns, and its length.
struct Degree {
  i64 begin;
  u64 count;
};

__device__ __forceinline__ Degree degree_of(const Csr& csr, u32 row) {
  const i64 begin = __ldg(&csr.offsets[row]);
  return {begin, (u64)(__ldg(&csr.offsets[row + 1]) - begin)};
}

// Chunks of a vertex; 0 if it is not large.
__device__ __forceinline__ u32 chunks_of(u64 degree) {
  return degree > kLargeDegree ? (u32)((degree + kChunkEdges - 1) / kChunkEdges) : 0;
}

// The warp writes the chunks of its lanes' large vertices. `at` is the first place of the lane's chunks in the queue.
__device__ __forceinline__ void write_chunks(u64* queue, u32 row, u32 chunks, u64 at) {
  const bool few = chunks <= kFewChunks;
  for (u32 chunk = 0; few && chunk < chunks; ++chunk) queue[at + chunk] = (u64)row << 32 | chunk;
  for (u32 left = __ballot_sync(kAll, !few); left; left &= left - 1) {
    const u32 from = __ffs(left) - 1;
    const u32 count = __shfl_sync(kAll, chunks, from), of = __shfl_sync(kAll, row, from);
    const u64 first = __shfl_sync(kAll, at, from);
    for (u32 chunk = lane_id(); chunk < count; chunk += kLanes) queue[first + chunk] = (u64)of << 32 | chunk;
  }
}

__device__ __forceinline__ bool is_target(const Params& a, u32 row) {
  return a.target_bits && has_bit(__ldg(&a.target_bits[row >> 5]), row);
}

// The internal id of a source.
__device__ __forceinline__ u32 source_at(const Params& a, u32 i) {
  return a.source_count > kFewSources ? a.sources[i] : a.few_sources[i];
}

// Write a row's distance and parent.
__device__ __forceinline__ void label(const Params& a, u32 row, u32 distance, u32 parent) {
  a.distances[row] = (i32)distance;
  if (kPredecessors) a.peers[a.rank].parents[a.rank * a.n_local + row] = parent;
}

// Mark a row of this rank as seen, so that it is not discovered again here.
__device__ __forceinline__ void mark_visited(const Params& a, u32 row) {
  set_bits(&a.peers[a.rank].visited[a.rank * a.words_local + (row >> 5)], bit_of(row));
}

// Offset in an inbox of the bin that rank `from` fills in levels of this parity.
__device__ __forceinline__ u64 inbox_offset(const Params& a, u32 parity, u32 from) {
  return ((u64)parity * a.ranks + from) * a.bin_capacity;
}

// A warp stages the vertices that its lanes won. True when the block has to publish before its next round.
__device__ __forceinline__ bool stage(Block& b, const bool (&won)[kSparseUnroll], const u32 (&ids)[kSparseUnroll],
                                      const u32 (&parents)[kSparseUnroll]) {
  u32 ballots[kSparseUnroll], count = 0;
#pragma unroll
  for (u32 j = 0; j < kSparseUnroll; ++j) {
    ballots[j] = __ballot_sync(kAll, won[j]);
    count += __popc(ballots[j]);
  }
  if (!count) return false;
  u32 at = 0;
  if (lane_id() == 0) at = atomicAdd(&b.staged, count);
  at = __shfl_sync(kAll, at, 0);
  const bool full = at + count > kStage - kRound;
#pragma unroll
  for (u32 j = 0; j < kSparseUnroll; ++j) {
    if (won[j]) {
      const u32 to = at + __popc(ballots[j] & lanes_below());
      b.stage.ids[to] = ids[j];
      if (kPredecessors) b.stage.parents[to] = parents[j];
    }
    at += __popc(ballots[j]);
  }
  return full;
}

// A warp counts its lanes with `counted` in the block's tally. Returns the lane's place in this block's share.
__device__ __forceinline__ u32 tally(Block& b, u32 counter, bool counted) {
  const u32 ballot = __ballot_sync(kAll, counted);
  u32 at = 0;
  if (ballot) {
    if (lane_id() == 0) at = atomicAdd(&b.tally[counter], (u32)__popc(ballot));
    at = __shfl_sync(kAll, at, 0);
  }
  return at + __popc(ballot & lanes_below());
}

// Where a block publishes: index of the queue, slot of its counters, parity of the bins, distance to label.
struct Output {
  u32 queue;
  Slot* slot;
  u32 parity;
  u32 distance;
};

// The block labels and queues the vertices that it staged. All threads call it, after a block barrier that follows the
// staging. The caller passes a block barrier before it stages again.
__device__ __forceinline__ void publish(const Params& a, Block& b, const Output& to) {
  const u32 staged = b.staged;
  for (u32 first = 0; first < staged; first += kThreads) {
    const u32 i = first + threadIdx.x;
    const bool on = i < staged;
    const u32 id = on ? b.stage.ids[i] : 0;
    const u32 owner = kGang ? id / a.n_local : 0;
    const u32 row = kGang ? id - owner * a.n_local : id;
    const bool mine = on && (!kGang || owner == a.rank);
    bool small = false;
    u32 chunks = 0, at = 0, chunks_at = 0;
    if (__any_sync(kAll, on)) {
      Degree degree = {0, 0};
      if (mine) {
        degree = degree_of(a.out, row);
        label(a, row, to.distance, kPredecessors ? b.stage.parents[i] : kNoVertex);
        set_bit(a.known, row);
        if (degree.count) prefetch(&a.out.columns[degree.begin]);
      }
      add_total(b, kDiscovered, mine);
      add_total(b, kEdges, degree.count);
      if (a.target_bits) add_total(b, kTargets, mine && is_target(a, row));
      small = degree.count && degree.count <= kLargeDegree;
      chunks = chunks_of(degree.count);
      at = tally(b, kSmall, small);
      if (__any_sync(kAll, chunks)) {
        u32 total;
        const u32 before = scan_exclusive(chunks, total);
        if (lane_id() == 0) chunks_at = atomicAdd(&b.tally[kChunks], total);
        chunks_at = __shfl_sync(kAll, chunks_at, 0) + before;
      }
      if (kGang) {
        for (u32 rank = 0; rank < a.ranks; ++rank) {
          const bool sent = on && !mine && owner == rank;
          if (__any_sync(kAll, sent)) {
            const u32 position = tally(b, kSent + rank, sent);
            if (sent) at = position;
          }
        }
      }
    }
    __syncthreads();
    if (threadIdx.x < kTotals) {
      const u32 count = b.tally[threadIdx.x];
      b.base[threadIdx.x] = count ? atomicAdd(&to.slot->lines[threadIdx.x].value, (u64)count) : 0;
      b.tally[threadIdx.x] = 0;
    }
    __syncthreads();
    if (small) a.queues[to.queue][b.base[kSmall] + at] = row;
    if (__any_sync(kAll, chunks)) write_chunks(a.chunks[to.queue], row, chunks, b.base[kChunks] + chunks_at);
    if (kGang && on && !mine) {
      const u64 place = inbox_offset(a, to.parity, a.rank) + b.base[kSent + owner] + at;
      a.peers[owner].inbox[place] = row;
      if (kPredecessors) a.peers[owner].inbox_parents[place] = b.stage.parents[i];
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) b.staged = 0;
}

// This rank's blocks share `count` items, stage the accepted ones, and publish when a stage is full; the last ones stay
// staged. A thread has kSparseUnroll items between two block barriers. `take(i, id, parent)` sets the vertex of item i
// and returns whether to publish it.
template <typename Take>
__device__ __forceinline__ void stage_items(const Params& a, Block& b, const Output& to, u32 count, Take take) {
  for (u32 first = blockIdx.x * kThreads; first < count; first += gridDim.x * kRound) {
    bool won[kSparseUnroll];
    u32 ids[kSparseUnroll], parents[kSparseUnroll];
#pragma unroll
    for (u32 j = 0; j < kSparseUnroll; ++j) {
      const u32 i = first + j * gridDim.x * kThreads + threadIdx.x;
      ids[j] = parents[j] = kNoVertex;
      won[j] = i < count && take(i, ids[j], parents[j]);
    }
    if (__syncthreads_or(stage(b, won, ids, parents))) {
      publish(a, b, to);
      __syncthreads();
    }
  }
}

// A warp queues the rows whose bits are set in up to 32 words of this rank's slice, a word a lane. Their labels are
// written elsewhere. With `counts` their degrees are added to the level's edges.
__device__ __forceinline__ void enqueue_words(const Params& a, Block& b, Slot* slot, u32 queue, u32 own_word,
                                              u32 bits, bool counts) {
  const u32 lane = lane_id();
  u32 small_bits = 0;  // in lane j: the small vertices of word j
  u64 edges = 0;
  for (u32 left = __ballot_sync(kAll, bits != 0); left;) {
    const u32 first = left;
    u32 degrees[kEnqueued], chunks = 0;
#pragma unroll
    for (u32 i = 0; i < kEnqueued; ++i) {
      const u32 j = __ffs(left) - 1;
      const u32 row = __shfl_sync(kAll, own_word, j) * kLanes + lane;
      degrees[i] = left && has_bit(__shfl_sync(kAll, bits, j), lane) ? (u32)degree_of(a.out, row).count : 0;
      left &= left - 1;
    }
    left = first;
#pragma unroll
    for (u32 i = 0; i < kEnqueued; ++i) {
      edges += degrees[i];
      chunks += chunks_of(degrees[i]);
      const u32 small = __ballot_sync(kAll, degrees[i] && !chunks_of(degrees[i]));
      if (left && lane == __ffs(left) - 1) small_bits = small;
      left &= left - 1;
    }
    if (__any_sync(kAll, chunks)) {
      u32 total;
      u32 before = scan_exclusive(chunks, total);
      u64 base = 0;
      if (lane == 0) base = atomicAdd(&slot->lines[kChunks].value, (u64)total);
      u64* const chunk_queue = a.chunks[queue] + __shfl_sync(kAll, base, 0);
      left = first;
#pragma unroll
      for (u32 i = 0; i < kEnqueued; ++i) {
        const u32 row = __shfl_sync(kAll, own_word, __ffs(left) - 1) * kLanes + lane;
        write_chunks(chunk_queue, row, chunks_of(degrees[i]), before);
        before += chunks_of(degrees[i]);
        left &= left - 1;
      }
    }
  }
  if (counts) add_total(b, kEdges, edges);
  u32 total;
  const u32 before = scan_exclusive(__popc(small_bits), total);
  if (!total) return;
  u64 base = 0;
  if (lane == 0) base = atomicAdd(&slot->lines[kSmall].value, (u64)total);
  base = __shfl_sync(kAll, base, 0);
  for (u32 left = __ballot_sync(kAll, small_bits != 0); left; left &= left - 1) {
    const u32 j = __ffs(left) - 1;
    const u32 word = __shfl_sync(kAll, small_bits, j), word_at = __shfl_sync(kAll, before, j);
    const u32 row = __shfl_sync(kAll, own_word, j) * kLanes + lane;
    if (has_bit(word, lane)) a.queues[queue][base + word_at + __popc(word & lanes_below())] = row;
  }
}

}  // namespace dbfs
