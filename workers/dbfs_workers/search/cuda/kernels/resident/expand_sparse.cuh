// Top-down level with few edges: queue to queue.
//
// A warp takes a few small vertices, or a piece of a large vertex's chunk, as a unit. Its lanes inspect kSparseUnroll
// edges between two block barriers. A neighbour not visited is claimed in the bitmap over all vertices and staged, so a
// rank sends a remote vertex at most once (Merrill 2012, section 7). On the shortest levels a lane claims without
// looking first, which saves one trip to L2. Reads 4 bytes and 16 of offsets a vertex, 4 bytes and a bit an edge.
#pragma once
#include "search/cuda/kernels/resident/rows.cuh"

namespace dbfs {

__device__ __forceinline__ void expand_sparse(const Params& a, Block& b, const Output& to) {
  const Run& run = b.run;
  const u32 lane = lane_id(), first_id = kGang ? a.rank * a.n_local : 0;
  u32* visited = a.peers[a.rank].visited;
  const bool look_first = run.frontier.edges > kTinyEdges;
  const u32 items = run.small;
  const u32 per_warp = rows_per_warp(items);
  const u32 vertex_units = (items + per_warp - 1) / per_warp;
  const u32 units = vertex_units + run.chunks * kPieces;
  u32 unit = warp_in_grid(), k = 0, row = kNoVertex;
  WarpRows rows = {0, 0, 0};
  bool more = blockIdx.x < units;
  while (more) {
    while (k >= rows.edges && unit < units) {
      Degree degree = {0, 0};
      if (unit < vertex_units) {
        const u32 i = unit * per_warp + lane;
        row = lane < per_warp && i < items ? a.queues[run.queue][i] : kNoVertex;
        if (row != kNoVertex) degree = degree_of(a.out, row);
      } else if (lane == 0) {
        const Chunk chunk = piece_at(a, a.chunks[run.queue], unit - vertex_units);
        row = chunk.row;
        degree = {chunk.begin, (u64)(chunk.end - chunk.begin)};
      }
      rows = share_rows(degree);
      k = 0;
      unit += warps_in_grid();
    }
    bool full = false;
    if (k < rows.edges) {
      bool won[kSparseUnroll];
      u32 ids[kSparseUnroll], parents[kSparseUnroll];
#pragma unroll
      for (u32 j = 0; j < kSparseUnroll; ++j) {
        const u32 edge = k + j * kLanes + lane;
        i64 place;
        const u32 from = find_row(rows, edge, place);
        parents[j] = kPredecessors ? first_id + __shfl_sync(kAll, row, from) : kNoVertex;
        won[j] = edge < rows.edges;
        ids[j] = won[j] ? __ldg(&a.out.columns[place]) : 0;
      }
      if (look_first) {
#pragma unroll
        for (u32 j = 0; j < kSparseUnroll; ++j) won[j] = won[j] && !has_bit(visited, ids[j]);
      }
#pragma unroll
      for (u32 j = 0; j < kSparseUnroll; ++j) {
        if (won[j]) won[j] = claim(visited, ids[j]);
      }
      full = stage(b, won, ids, parents);
      k += kLanes * kSparseUnroll;
    }
    more = __syncthreads_or(k < rows.edges || unit < units);
    if (more) full = __syncthreads_or(full);
    if (full || !more) publish(a, b, to);
    if (full && more) __syncthreads();
  }
}

}  // namespace dbfs
