// How a warp shares out the lists of up to 32 small vertices: Merrill's scan-gather (2012, section 4.2) in one warp.
//
// Each lane holds one vertex; a prefix sum of the degrees numbers the edges, and a lane finds the vertex of its edge by
// a binary search over the lanes' sums, five shuffles. Neighbouring lanes read neighbouring columns.
#pragma once
#include "resident/barrier.cuh"

namespace dbfs {

struct WarpRows {
  i64 begin;   // this lane's list
  u32 before;  // edges of the lanes below
  u32 edges;   // of all lanes
};

__device__ __forceinline__ WarpRows share_rows(const Degree& degree) {
  WarpRows rows;
  rows.begin = degree.begin;
  rows.before = scan_exclusive((u32)degree.count, rows.edges);
  return rows;
}

// The lane that holds edge k, and the edge's place in the columns. All lanes call it; k may be past the end.
__device__ __forceinline__ u32 find_row(const WarpRows& rows, u32 k, i64& place) {
  u32 from = 0;
#pragma unroll
  for (u32 step = kLanes / 2; step; step >>= 1) {
    if (__shfl_sync(kAll, rows.before, from + step) <= k) from += step;
  }
  place = __shfl_sync(kAll, rows.begin, from) + (k - __shfl_sync(kAll, rows.before, from));
  return from;
}

// Vertices a warp takes at a time: few where the queue is short, so that one pass over the edges covers it.
__device__ __forceinline__ u32 rows_per_warp(u32 items) {
  u32 rows = kLanes;
  while (rows > 1 && (u64)items * 2 <= (u64)warps_in_grid() * rows) rows >>= 1;
  return rows;
}

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

// One of the kPieces parts of a chunk: what a warp inspects at once in a sparse level.
__device__ __forceinline__ Chunk piece_at(const Params& a, const u64* queue, u32 i) {
  constexpr i64 kPieceEdges = kChunkEdges / kPieces;
  Chunk chunk = chunk_at(a, queue, i / kPieces);
  chunk.begin += (i % kPieces) * kPieceEdges;
  if (chunk.begin > chunk.end) chunk.begin = chunk.end;
  if (chunk.begin + kPieceEdges < chunk.end) chunk.end = chunk.begin + kPieceEdges;
  return chunk;
}

}  // namespace dbfs
