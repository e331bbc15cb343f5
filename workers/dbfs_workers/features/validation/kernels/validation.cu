// The validator's passes over a rank's labels, and over its edges against the labels of all ranks
// (features/validation/validation.py). The CPU's pass over edges is check_edges in features/validation/kernels/validation.py.
//
// In the pass over edges a thread takes kEdges edges of every tile of kThreads * kEdges, to have as many pairs of label reads in flight at
// once. An edge costs 8 bytes read in order, and 8 bytes read at random for each of its ends. A thread writes only if
// an edge is the first to support a vertex, at most once a vertex, or if an edge breaks a rule.
#include "search/cuda/kernels/common/scalars.cuh"

namespace dbfs {

constexpr u32 kThreads = 256;
constexpr u32 kEdges = 4;
constexpr u32 kAll = 0xffffffffu;

// Layout of `found`: three counts; the first two are each followed by the two ends of an edge.
enum { kSpans = 0, kLeaks = 3, kInside = 6 };

// Clear a vertex's bit. Other threads clear bits of the same word, so the test may be stale. But no bit is set again: a
// bit seen as cleared needs no atomic.
__device__ void support(u32* unsupported, u32 vertex) {
  const u32 bit = 1u << (vertex & 31);
  if (unsupported[vertex >> 5] & bit) atomicAnd(&unsupported[vertex >> 5], ~bit);
}

// Count an edge that breaks a rule; the first one counted leaves its ends.
__device__ void record(u64* found, u32 kind, u32 from, u32 to) {
  if (atomicAdd(&found[kind], 1ull) == 0) {
    found[kind + 1] = from;
    found[kind + 2] = to;
  }
}

constexpr u32 kNone = 0xffffffffu;

}  // namespace dbfs

// Pack the labels of `rows` rows into words, distance + 1 in the high half and the predecessor's position in the low
// half, and count in found[0] the labels that break a rule without regard to edges: out of range, a distance without a
// predecessor or the other way round, a row at distance 0 that is not its own predecessor, a source that is not at
// distance 0. found[1] counts the rows at distance 0. A thread takes a row: 8 bytes read and 8 written. `predecessors`:
// internal ids; null for distances alone. `n_local`: rows of a rank, padding included.
extern "C" __global__ void __launch_bounds__(dbfs::kThreads)
    dbfs_pack_labels(const i32* distances, const u32* predecessors, i64 rows, i64 n, u32 rank, u32 ranks, u32 n_local,
                     i64 farthest, const u32* sources, u32 source_count, u64* words, u64* found) {
  using namespace dbfs;
  const i64 threads = (i64)gridDim.x * blockDim.x, first = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  u64 wrong = 0, roots = 0;
  for (i64 row = first; row < rows; row += threads) {
    const i64 distance = distances[row];
    const u32 id = predecessors ? predecessors[row] : kNone;
    u64 parent = kNone;
    bool right = distance >= -1 && distance <= farthest;
    if (predecessors && id != kNone) {
      const u32 owner = id / n_local;
      parent = (u64)(id - owner * n_local) * ranks + owner;
      right = right && owner < ranks && (i64)parent < n;
    }
    if (predecessors) right = right && (id == kNone) == (distance < 0);
    if (distance == 0) right = right && (!predecessors || (i64)parent == row * ranks + rank);
    wrong += !right;
    roots += distance == 0;
    words[row] = (u64)(distance + 1) << 32 | (u32)parent;
  }
  for (i64 i = first; i < source_count; i += threads) wrong += distances[sources[i]] != 0;
  for (u32 step = 16; step; step >>= 1) {
    wrong += __shfl_xor_sync(kAll, wrong, step);
    roots += __shfl_xor_sync(kAll, roots, step);
  }
  if ((threadIdx.x & 31) != 0) return;
  if (wrong) atomicAdd(&found[0], wrong);
  if (roots) atomicAdd(&found[1], roots);
}

extern "C" __global__ void __launch_bounds__(dbfs::kThreads)
    dbfs_check_edges(const u32* src, const u32* dst, i64 count, const u64* table, int predecessors, int directed,
                     i64 bound, u32* unsupported, u64* found) {
  using namespace dbfs;
  constexpr i64 kTile = kThreads * kEdges;
  u64 inside = 0;
  for (i64 first = (i64)blockIdx.x * kTile; first < count; first += (i64)gridDim.x * kTile) {
    u32 u[kEdges], v[kEdges];
    u64 at_u[kEdges], at_v[kEdges];
#pragma unroll
    for (u32 j = 0; j < kEdges; ++j) {
      const i64 edge = first + j * kThreads + threadIdx.x;
      // Past the end, a self-loop of vertex 0: self-loops count for nothing and break no rule.
      u[j] = edge < count ? src[edge] : 0;
      v[j] = edge < count ? dst[edge] : 0;
    }
#pragma unroll
    for (u32 j = 0; j < kEdges; ++j) {
      at_u[j] = table[u[j]];
      at_v[j] = table[v[j]];
    }
#pragma unroll
    for (u32 j = 0; j < kEdges; ++j) {
      const i64 level_u = at_u[j] >> 32, level_v = at_v[j] >> 32, step = level_v - level_u;
      const bool both = level_u > 0 && level_v > 0;
      inside += both && u[j] != v[j];
      if (both && step == 1) {
        if (!predecessors || (u32)at_v[j] == u[j]) support(unsupported, v[j]);
      } else if (both && step == -1) {
        if (!directed && (!predecessors || (u32)at_u[j] == v[j])) support(unsupported, u[j]);
      } else if (both && (step > 1 || (step < -1 && !directed))) {
        record(found, kSpans, u[j], v[j]);
      } else if (level_u > 0 && level_v == 0 && level_u < bound) {
        record(found, kLeaks, u[j], v[j]);
      } else if (level_v > 0 && level_u == 0 && level_v < bound && !directed) {
        record(found, kLeaks, v[j], u[j]);
      }
    }
  }
  for (u32 step = 16; step; step >>= 1) inside += __shfl_xor_sync(kAll, inside, step);
  if ((threadIdx.x & 31) == 0 && inside) atomicAdd(&found[kInside], inside);
}
