// The degree order (search/partition/ordering.py): vertices by falling degree, and by id among equal degrees. A thread takes one
// vertex.
#include "search/cuda/kernels/common/scalars.cuh"

// Write keys[n], to be sorted: the complement of the degree in the high half, the id in the low half. Degrees past
// 2^32 - 1 count as 2^32 - 1. Reads 8 bytes a vertex and writes 8.
extern "C" __global__ void __launch_bounds__(256) dbfs_order_keys(const u64* degrees, i64 n, u64* keys) {
  const i64 vertex = (i64)blockIdx.x * 256 + threadIdx.x;
  if (vertex >= n) return;
  const u64 degree = degrees[vertex];
  const u32 capped = degree > 0xffffffffull ? 0xffffffffu : (u32)degree;
  keys[vertex] = (u64)~capped << 32 | (u64)vertex;
}

// Write vertex[n] and position[n], the numbering both ways, from the sorted keys. Reads 8 bytes a vertex, writes 4 in
// order and 4 at random.
extern "C" __global__ void __launch_bounds__(256)
    dbfs_order(const u64* keys, i64 n, u32* position, u32* vertex) {
  const i64 at = (i64)blockIdx.x * 256 + threadIdx.x;
  if (at >= n) return;
  const u32 id = (u32)keys[at];
  vertex[at] = id;
  position[id] = (u32)at;
}
