// Top-down level with many edges: queue to bitmap.
//
// A lane looks up a neighbour in this rank's bitmap over all vertices and sets its bit if it was clear: no queue, no
// counter, no wait for an answer. Afterwards each owner gathers the new bits of its slice (merge.cuh). A stale L1 line
// only makes a lane set a bit twice. With predecessors the lane claims the bit, and the winner stores the parent. A
// lane that looked at a stale line loses the claim, so a parent is never one level off. Reads 4 bytes and one bit an
// edge: the bit from L1 if the bitmap's hot words fit it, else 32 bytes from L2.
#pragma once
#include "search/cuda/kernels/resident/rows.cuh"

namespace dbfs {

// Mark a lane's neighbours as visited.
template <u32 kUnroll>
__device__ __forceinline__ void mark(const Params& a, const bool (&on)[kUnroll], const u32 (&ids)[kUnroll],
                                     const u32 (&parents)[kUnroll]) {
  const Peer& own = a.peers[a.rank];
  u32 words[kUnroll];
#pragma unroll
  for (u32 j = 0; j < kUnroll; ++j) words[j] = on[j] ? own.visited[ids[j] >> 5] : kAll;
#pragma unroll
  for (u32 j = 0; j < kUnroll; ++j) {
    if (has_bit(words[j], ids[j])) continue;
    if (kPredecessors) {
      if (claim(own.visited, ids[j])) own.parents[ids[j]] = parents[j];
    } else {
      set_bit(own.visited, ids[j]);
    }
  }
}

// A warp takes a chunk of a large vertex, then up to 32 small vertices at a time.
__device__ __forceinline__ void expand_dense(const Params& a, Block& b) {
  const u32 queue = b.run.queue, small = b.run.small, chunks = b.run.chunks;
  const u32 lane = lane_id(), first_id = a.rank * a.n_local;
  for (u32 i = warp_in_grid(); i < chunks; i += warps_in_grid()) {
    const Chunk chunk = chunk_at(a, a.chunks[queue], i);
    for (i64 k = chunk.begin; k < chunk.end; k += kLanes * kChunkUnroll) {
      bool on[kChunkUnroll];
      u32 ids[kChunkUnroll], parents[kChunkUnroll];
#pragma unroll
      for (u32 j = 0; j < kChunkUnroll; ++j) {
        const i64 place = k + j * kLanes + lane;
        on[j] = place < chunk.end;
        ids[j] = on[j] ? load_stream(&a.out.columns[place]) : 0;
        parents[j] = first_id + chunk.row;
      }
      mark(a, on, ids, parents);
    }
  }
  const u32 per_warp = rows_per_warp(small);
  for (u32 unit = warp_in_grid(); (u64)unit * per_warp < small; unit += warps_in_grid()) {
    const u32 i = unit * per_warp + lane;
    const bool taken = lane < per_warp && i < small;
    const u32 row = taken ? a.queues[queue][i] : 0;
    const Degree degree = taken ? degree_of(a.out, row) : Degree{0, 0};
    const WarpRows rows = share_rows(degree);
    for (u32 k = 0; k < rows.edges; k += kLanes * kSmallUnroll) {
      bool on[kSmallUnroll];
      u32 ids[kSmallUnroll], parents[kSmallUnroll];
#pragma unroll
      for (u32 j = 0; j < kSmallUnroll; ++j) {
        const u32 edge = k + j * kLanes + lane;
        i64 place;
        const u32 from = find_row(rows, edge, place);
        parents[j] = kPredecessors ? first_id + __shfl_sync(kAll, row, from) : kNoVertex;
        on[j] = edge < rows.edges;
        ids[j] = on[j] ? load_stream(&a.out.columns[place]) : 0;
      }
      mark(a, on, ids, parents);
    }
  }
}

}  // namespace dbfs
