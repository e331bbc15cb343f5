// How a warp shares the lists of up to 32 small vertices: Merrill's scan-gather (2012, section 4.2) in one warp.
//
// Each lane holds one vertex. A prefix sum of the degrees numbers the edges, and a lane finds the vertex of its edge by
// a binary search over the lanes' sums, five shuffles. Neighbouring lanes read neighbouring columns.
#pragma once
#include "search/cuda/kernels/resident/barrier.cuh"

namespace dbfs {

// The lists of a warp's vertices.
struct WarpRows {
  i64 begin;   // of this lane's list, in the columns
  u32 before;  // edges of the lanes below
  u32 edges;   // of all lanes
};

__device__ __forceinline__ WarpRows share_rows(const Degree& degree) {
  WarpRows rows;
  rows.begin = degree.begin;
  rows.before = scan_exclusive((u32)degree.count, rows.edges);
  return rows;
}

// Return the lane that holds edge k, and set the edge's place in the columns. All lanes call it; k may be past the end.
__device__ __forceinline__ u32 find_row(const WarpRows& rows, u32 k, i64& place) {
  u32 from = 0;
#pragma unroll
  for (u32 step = kLanes / 2; step; step >>= 1) {
    if (__shfl_sync(kAll, rows.before, from + step) <= k) from += step;
  }
  place = __shfl_sync(kAll, rows.begin, from) + (k - __shfl_sync(kAll, rows.before, from));
  return from;
}

// Vertices that a warp takes at a time: few of a short queue, so that one pass covers all of its edges.
__device__ __forceinline__ u32 rows_per_warp(u32 items) {
  u32 rows = kLanes;
  while (rows > 1 && (u64)items * 2 <= (u64)warps_in_grid() * rows) rows >>= 1;
  return rows;
}

// Up to kChunkEdges edges of a large vertex: its row, and a range of the columns.
struct Chunk {
  u32 row;
  i64 begin, end;
};

__device__ __forceinline__ Chunk chunk_at(const Params& a, const u64* queue, u32 i) {
  const u64 item = queue[i];
  Chunk chunk;
  chunk.row = (u32)(item >> 32);
  chunk.begin = __ldg(&a.out.offsets[chunk.row]) + (i64)(u32)item * kChunkEdges;
  const i64 end = __ldg(&a.out.offsets[chunk.row + 1]);
  chunk.end = chunk.begin + kChunkEdges < end ? chunk.begin + kChunkEdges : end;
  return chunk;
}

// One of the kPieces parts of a chunk, which a warp inspects at once in a sparse level.
__device__ __forceinline__ Chunk piece_at(const Params& a, const u64* queue, u32 i) {
  constexpr i64 kPieceEdges = kChunkEdges / kPieces;
  Chunk chunk = chunk_at(a, queue, i / kPieces);
  chunk.begin += (i % kPieces) * kPieceEdges;
  if (chunk.begin > chunk.end) chunk.begin = chunk.end;
  if (chunk.begin + kPieceEdges < chunk.end) chunk.end = chunk.begin + kPieceEdges;
  return chunk;
}

}  // namespace dbfs
