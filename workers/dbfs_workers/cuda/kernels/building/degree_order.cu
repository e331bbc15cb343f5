// The degree order (ordering.py): vertices by falling degree, those of one degree by their ids. A thread takes one vertex.
#include "common/scalars.cuh"

// keys[n], to be sorted: the degree's complement above the id. Degrees past 32 bits count as 2^32 - 1. Reads and writes 8
// bytes a vertex.
extern "C" __global__ void __launch_bounds__(256) dbfs_order_keys(const u64* degrees, i64 n, u64* keys) {
  const i64 vertex = (i64)blockIdx.x * 256 + threadIdx.x;
  if (vertex >= n) return;
  const u64 degree = degrees[vertex];
  const u32 capped = degree > 0xffffffffull ? 0xffffffffu : (u32)degree;
  keys[vertex] = (u64)~capped << 32 | (u64)vertex;
}

// Both ways of the numbering, from the sorted keys. Reads 8 bytes a vertex, writes 8, half of them anywhere.
extern "C" __global__ void __launch_bounds__(256)
    dbfs_order(const u64* keys, i64 n, u32* position, u32* vertex) {
  const i64 at = (i64)blockIdx.x * 256 + threadIdx.x;
  if (at >= n) return;
  const u32 id = (u32)keys[at];
  vertex[at] = id;
  position[id] = (u32)at;
}
