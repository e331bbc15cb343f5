// The sweeps over the shortest paths from 32 sources (Brandes 2001; features/batches/path_sweeps.py). A row has a number for each of
// the sources: row i has the elements 32 * i to 32 * i + 31 of an array, and a warp takes a row, a lane a source. Rows are
// those of all ranks, by internal id. Distances have 1, 2 or 4 bytes; the largest number stands for unreached.
#include "search/cuda/kernels/phases/edges.cuh"
#include "search/cuda/kernels/phases/reserve.cuh"

namespace dbfs {

// The distance of a row from the lane's source; kNoVertex for none.
struct Distances {
  const u8* bytes;
  u32 item;
  __device__ __forceinline__ u32 of(u64 row) const {
    const u64 at = row * kLanes + lane_id();
    if (item == 1) {
      const u32 found = __ldg(&bytes[at]);
      return found == 0xff ? kNoVertex : found;
    }
    if (item == 2) {
      const u32 found = __ldg(&((const u16*)bytes)[at]);
      return found == 0xffff ? kNoVertex : found;
    }
    return __ldg(&((const u32*)bytes)[at]);
  }
};

__device__ __forceinline__ double warp_total(double v) {
  for (u32 step = kLanes / 2; step; step >>= 1) v += __shfl_xor_sync(kAll, v, step);
  return v;
}

}  // namespace dbfs

// list_rows: writes distance << 32 | row for each distance that a row has from some source, in any order; with null keys
// these are counted only. A warp takes a row.
extern "C" __global__ void dbfs_path_sums_list_rows(const u8* distances, u32 item, i64 rows, u64* keys, u64* end) {
  using namespace dbfs;
  const i64 warps = (i64)gridDim.x * (blockDim.x / kLanes);
  u64 counted = 0;
  for (i64 row = warp_in_grid(); row < rows; row += warps) {
    const u32 distance = Distances{distances, item}.of(row);
    bool first = distance != kNoVertex;
    for (u32 lane = 0; lane + 1 < kLanes; ++lane) {
      const u32 other = __shfl_sync(kAll, distance, lane);
      first = first && !(lane < lane_id() && other == distance);
    }
    const u32 listed = __ballot_sync(kAll, first);
    if (!keys) {
      counted += first;
      continue;
    }
    if (!has_bit(listed, lane_id())) continue;
    keys[reserve(end, listed)] = (u64)distance << 32 | (u64)row;
  }
  if (!keys) add_sum(end, counted);
}

// add_up: for each row of a level, adds the numbers of those neighbours that lie `step` levels further to the row's own
// totals; for the sources that have the row on this level. Parallel edges count once. With edge sums, it also adds paths
// times number to each edge's sum over the sources, and the square to the next one. A warp takes kWarpEdges of the rows'
// edges at a time. Reads 4 bytes, the distances of a row and, where one fits, its numbers an edge.
extern "C" __global__ void dbfs_path_sums_add_up(const u32* rows, const i64* starts, const i64* ends, i64 size,
                                              const u32* columns, const u8* distances, u32 item, u32 level, i32 step,
                                              const double* numbers, double* totals, double* edge_sums) {
  using namespace dbfs;
  const Distances of{distances, item};
  const u32 wanted = level + step;
  const i64 total = __ldg(&ends[size - 1]), warps = (i64)gridDim.x * (blockDim.x / kLanes);
  for (i64 first = (i64)warp_in_grid() * kWarpEdges; first < total; first += warps * kWarpEdges) {
    const i64 past = first + kWarpEdges < total ? first + kWarpEdges : total;
    i64 of_row = search_together(ends, first, 0, size - 1);
    for (i64 edge = first; edge < past; ++of_row) {
      const i64 row_end = __ldg(&ends[of_row]), before = of_row ? __ldg(&ends[of_row - 1]) : 0;
      const i64 stop = row_end < past ? row_end : past;
      const i64 list = __ldg(&starts[of_row]) - before;
      const u64 row = __ldg(&rows[of_row]);
      const bool on = of.of(row) == level;
      const double paths = edge_sums && on ? numbers[row * kLanes + lane_id()] : 0;
      double mine = 0;
      for (; edge < stop; ++edge) {
        const u32 other = __ldg(&columns[list + edge]);
        // Columns that repeat another follow it in their row.
        if (edge > before && __ldg(&columns[list + edge - 1]) == other) continue;
        const bool fits = on && of.of(other) == wanted;
        if (!__any_sync(kAll, fits)) continue;
        const double number = fits ? numbers[(u64)other * kLanes + lane_id()] : 0;
        mine += number;
        if (!edge_sums) continue;
        const double flow = warp_total(paths * number), square = warp_total(paths * number * paths * number);
        if (lane_id() == 0) {
          edge_sums[2 * (list + edge)] += flow;
          edge_sums[2 * (list + edge) + 1] += square;
        }
      }
      if (mine != 0) atomicAdd(&totals[row * kLanes + lane_id()], mine);
    }
  }
}

// finish: makes the dependencies of the sources on the rows of a level from the rows' totals, and adds them up. A warp
// takes a row: its number of paths is replaced by (1 + dependency) / paths; its three sums get the dependencies, their
// squares, and the number of sources.
extern "C" __global__ void dbfs_path_sums_finish(const u32* rows, i64 size, const u8* distances, u32 item, u32 level,
                                              double* numbers, const double* totals, double* sums) {
  using namespace dbfs;
  const i64 warps = (i64)gridDim.x * (blockDim.x / kLanes);
  for (i64 i = warp_in_grid(); i < size; i += warps) {
    const u64 row = __ldg(&rows[i]), at = row * kLanes + lane_id();
    const bool on = Distances{distances, item}.of(row) == level;
    double dependency = 0;
    if (on) {
      const double paths = numbers[at];
      dependency = paths * totals[at];
      numbers[at] = totals[at] + 1 / paths;
    }
    const double sum = warp_total(dependency), squares = warp_total(dependency * dependency);
    const u32 sources = __popc(__ballot_sync(kAll, on));
    if (lane_id() == 0) {
      sums[3 * row] += sum;
      sums[3 * row + 1] += squares;
      sums[3 * row + 2] += sources;
    }
  }
}
