// The first two steps: clear the state of the previous run, then label and queue the sources.
#pragma once
#include "search/cuda/kernels/resident/barrier.cuh"

namespace dbfs {

// The grid fills `bytes` (rounded down to 16) of an array with a word. A thread writes 16 bytes at a time.
__device__ __forceinline__ void fill(void* array, u64 bytes, u32 value) {
  uint4* to = (uint4*)array;
  const u64 threads = (u64)gridDim.x * kThreads;
  for (u64 i = (u64)blockIdx.x * kThreads + threadIdx.x; i < bytes / 16; i += threads) {
    to[i] = make_uint4(value, value, value, value);
  }
}

// Step::kReset. Writes 4 bytes a row (8 with predecessors) and two bitmaps, in whole 16-byte words to which the arrays
// are padded. Rows without in-edges start as known, so that bottom-up levels pass over them. Rows past `reset_rows`
// have no edge and were no source of the previous run with these arrays, so they still hold "unreached".
__device__ __forceinline__ void reset(const Params& a) {
  const Peer& own = a.peers[a.rank];
  fill(a.distances, 4ull * a.reset_rows, 0xffffffffu);
  if (kPredecessors) fill(own.parents + (u64)a.rank * a.n_local, 4ull * a.reset_rows, kNoVertex);
  if (a.closed) {
    uint4* known = (uint4*)a.known;
    const uint4* closed = (const uint4*)a.closed;
    const u32 threads = gridDim.x * kThreads;
    for (u32 i = blockIdx.x * kThreads + threadIdx.x; i < (a.words_local + 3) / 4; i += threads) known[i] = closed[i];
  } else {
    fill(a.known, 4ull * a.words_local + 12, 0);
  }
  fill(own.visited, 4ull * a.words_local * a.ranks + 12, 0);
  if (blockIdx.x == 0) {
    u64* counters = (u64*)a.control->slots;
    for (u32 i = threadIdx.x; i < sizeof(a.control->slots) / 8; i += kThreads) counters[i] = 0;
  }
}

// Step::kStart. Every rank marks all sources as visited; the owner queues a source. A thread takes a source.
__device__ __forceinline__ void place_sources(const Params& a, Block& b, const Output& to) {
  stage_items(a, b, to, a.source_count, [&](u32 i, u32& id, u32& parent) {
    id = parent = source_at(a, i);
    return claim(a.peers[a.rank].visited, id) && id / a.n_local == a.rank;
  });
  __syncthreads();
  if (b.staged) publish(a, b, to);
}

}  // namespace dbfs
