// Facts of a rank's rows that the resident kernel needs before a run: see DeviceGraph in device_graph.py.
#include "search/cuda/kernels/common/groups.cuh"

namespace dbfs {

constexpr u32 kThreads = 256;
constexpr u32 kAll = 0xffffffffu;
constexpr u32 kNoVertex = 0xffffffffu;
constexpr i64 kMostTried = 64;  // so that the thread of a hub does not hold up all others

// Layout of `sums`.
enum { kLastUsed, kConnected, kMaxDegree, kMaxOthers, kChunkCount };

}  // namespace dbfs

// A thread takes one row, and a warp adds up its rows. The number of rows is a multiple of 32, so warps are whole.
// Reads 8 bytes a row of each offsets array, the row's first in-neighbour, and the neighbours of rows that may fit into
// the table; writes 4 bytes and one bit a row. Without in-edges, in_offsets, in_columns, hubs and closed are null.
extern "C" __global__ void __launch_bounds__(dbfs::kThreads)
    dbfs_facts(const i64* offsets, const u32* columns, const i64* in_offsets, const u32* in_columns, u32* hubs,
               u32* closed, i64 rows, u32 table_degree, u32 large_degree, u32 chunk_edges, u64* sums) {
  using namespace dbfs;
  const i64 row = (i64)blockIdx.x * kThreads + threadIdx.x;
  if (row >= rows) return;
  const u64 degree = offsets[row + 1] - offsets[row];
  bool used = degree > 0;
  if (in_offsets) {
    const i64 first = in_offsets[row];
    const bool has_in = in_offsets[row + 1] > first;
    hubs[row] = has_in ? in_columns[first] : kNoVertex;
    const u32 without = __ballot_sync(kAll, !has_in);
    if ((threadIdx.x & 31) == 0) closed[row >> 5] = without;
    used = used || has_in;
  }
  u64 last = used ? row + 1 : 0, most = degree, others = degree;
  if (degree <= table_degree + 1) {
    for (i64 k = offsets[row]; k < offsets[row + 1]; ++k) others -= columns[k] == row;
  }
  u64 chunks = degree > large_degree ? (degree + chunk_edges - 1) / chunk_edges : 0;
  const u32 connected = __popc(__ballot_sync(kAll, used));
  for (u32 step = 16; step; step >>= 1) {
    last = max(last, __shfl_xor_sync(kAll, last, step));
    most = max(most, __shfl_xor_sync(kAll, most, step));
    others = max(others, __shfl_xor_sync(kAll, others, step));
    chunks += __shfl_xor_sync(kAll, chunks, step);
  }
  if ((threadIdx.x & 31) == 0 && connected) {
    atomicMax(&sums[kLastUsed], last);
    atomicAdd(&sums[kConnected], (u64)connected);
    atomicMax(&sums[kMaxDegree], most);
    atomicMax(&sums[kMaxOthers], others);
    if (chunks) atomicAdd(&sums[kChunkCount], chunks);
  }
}

// Count how often each vertex is an in-neighbour here. Reads 4 bytes an edge.
extern "C" __global__ void dbfs_uses(const u32* columns, i64 edges, u32* uses) {
  const i64 threads = (i64)gridDim.x * blockDim.x;
  for (i64 k = (i64)blockIdx.x * blockDim.x + threadIdx.x; k < edges; k += threads) atomicAdd(&uses[columns[k]], 1u);
}

// For each row, write the in-neighbour that most rows have, among the first kMostTried of its list; of several the first.
// A thread takes a row, and reads 8 bytes for each of these neighbours.
extern "C" __global__ void dbfs_hubs(const i64* offsets, const u32* columns, const u32* uses, i64 rows, u32* hubs) {
  using namespace dbfs;
  const i64 row = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const i64 begin = offsets[row], most_end = begin + kMostTried;
  const i64 end = offsets[row + 1] < most_end ? offsets[row + 1] : most_end;
  u32 hub = kNoVertex, most = 0;
#pragma unroll 4
  for (i64 k = begin; k < end; ++k) {
    const u32 id = columns[k], used = uses[id];
    if (used <= most) continue;
    hub = id;
    most = used;
  }
  hubs[row] = hub;
}

// Write the neighbours of each row into a table of 2^log words a row, with kNoVertex behind the last. A row itself is
// left out, since it is never a discovery. A thread takes a row.
extern "C" __global__ void dbfs_table(const i64* offsets, const u32* columns, i64 rows, u32 log, u32* table) {
  const i64 row = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  u32* to = table + (row << log);
  u32* const end = to + (1 << log);
  for (i64 k = offsets[row]; k < offsets[row + 1]; ++k) {
    if (columns[k] != row) *to++ = columns[k];
  }
  while (to < end) *to++ = dbfs::kNoVertex;
}

// Write the degree that the rows of each group have in common, or kMixed, and count the mixed groups. A warp takes a
// group, and reads 8 bytes a row. The last group is mixed unless it is whole.
extern "C" __global__ void dbfs_common_degrees(const i64* offsets, i64 rows, u32* common, u64* mixed) {
  using namespace dbfs;
  const u32 lane = threadIdx.x & 31;
  const i64 group = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
  const i64 first = group * kGroupRows;
  if (first >= rows) return;
  bool same = first + kGroupRows <= rows;
  const u64 degree = offsets[first + 1] - offsets[first];
  for (i64 row = first + lane; same && row < first + kGroupRows; row += 32) {
    same = (u64)(offsets[row + 1] - offsets[row]) == degree;
  }
  same = __all_sync(kAll, same) && degree < kMixed;
  if (lane) return;
  common[group] = same ? (u32)degree : kMixed;
  if (!same) atomicAdd(mixed, 1ull);
}
