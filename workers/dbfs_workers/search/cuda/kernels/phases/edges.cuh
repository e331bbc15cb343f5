// Sharing the edges of a frontier evenly, whatever the degrees (Merrill 2012, section 4: gathering by scan).
//
// The running sums of the degrees number the edges. A warp takes kWarpEdges of them in a row. Its lanes find the
// vertices of the first and the last edge together (32 probes a step), and each lane finds its own vertex between those
// two. So many warps share a hub, and the lanes of one warp share many small vertices. Reads 4 bytes of columns an
// edge; the search reads log2(vertices of the warp's piece) sums of 8 bytes, mostly from L1.
#pragma once
#include "search/cuda/kernels/common/memory.cuh"

namespace dbfs {

// Edges that a warp takes at a time, with two searches for each 512.
constexpr i64 kWarpEdges = 512;

// A frontier of `size` rows: for each its start in the columns, and the sum of the degrees up to and with it.
struct FrontierEdges {
  const u32* rows;
  const i64* starts;
  const i64* ends;
  i64 size;
};

// The warp's search: the first i in [low, high] with ends[i] > edge. ends[high] > edge must hold.
__device__ __forceinline__ i64 search_together(const i64* ends, i64 edge, i64 low, i64 high) {
  while (low < high) {
    const i64 piece = (high - low + kLanes) / kLanes;
    const i64 last = low + piece * (lane_id() + 1) - 1;
    const u32 past = __ballot_sync(kAll, last >= high || __ldg(&ends[last]) > edge);
    low += piece * (__ffs(past) - 1);
    if (low + piece - 1 < high) high = low + piece - 1;
  }
  return low;
}

// A lane's search for the same.
__device__ __forceinline__ i64 search_alone(const i64* ends, i64 edge, i64 low, i64 high) {
  while (low < high) {
    const i64 middle = (low + high) / 2;
    if (__ldg(&ends[middle]) > edge) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// Call visit(on, edge, row, neighbour) once for every edge, all lanes of a warp together. `on` is false for a lane
// without an edge.
template <typename Visit>
__device__ __forceinline__ void visit_edges(const FrontierEdges& frontier, const u32* columns, Visit visit) {
  const i64 total = frontier.size ? __ldg(&frontier.ends[frontier.size - 1]) : 0;
  const i64 warp = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / kLanes, warps = (i64)gridDim.x * blockDim.x / kLanes;
  for (i64 first = warp * kWarpEdges; first < total; first += warps * kWarpEdges) {
    const i64 past = first + kWarpEdges < total ? first + kWarpEdges : total;
    i64 at = search_together(frontier.ends, first, 0, frontier.size - 1);
    const i64 last = search_together(frontier.ends, past - 1, at, frontier.size - 1);
    for (i64 step = first; step < past; step += kLanes) {
      const i64 edge = step + lane_id();
      const bool on = edge < past;
      u32 row = 0, neighbour = 0;
      if (on) {
        at = search_alone(frontier.ends, edge, at, last);
        const i64 before = at ? __ldg(&frontier.ends[at - 1]) : 0;
        row = __ldg(&frontier.rows[at]);
        neighbour = load_stream(&columns[__ldg(&frontier.starts[at]) + edge - before]);
      }
      visit(on, edge, row, neighbour);
    }
  }
}

}  // namespace dbfs
