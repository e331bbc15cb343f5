// A rank's labels in the order of the caller's vertices, of a graph ordered by degree (serving/reads/ordered_labels.py).
//
// A thread takes a vertex: it reads the vertex's position in order, 4 bytes, and the label at random, 4 bytes more if
// the rank owns the position. A predecessor costs another random read, that of its vertex.
#include "search/cuda/kernels/common/scalars.cuh"

constexpr u32 kNone = 0xffffffffu;

// Write `count` labels from vertex `first` on into `out`: their lowest bits, or all bits set for a vertex that was not
// reached, or that another rank owns. `vertex`: the vertices by position, for predecessors; null for distances. `rows`:
// rows of a rank, if predecessors are internal ids; 0 if they are positions.
template <class T>
__device__ __forceinline__ void by_vertex(const u32* labels, const u32* position, const u32* vertex, i64 first,
                                          i64 count, u32 rank, u32 ranks, u32 rows, T* out) {
  const i64 threads = (i64)gridDim.x * blockDim.x;
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {
    const u32 at = position[first + i], row = at / ranks;
    u32 label = kNone;
    if (at - row * ranks == rank) {
      label = labels[row];
      if (vertex && label != kNone) {
        const u32 owner = rows ? label / rows : 0;
        label = vertex[rows ? (label - owner * rows) * ranks + owner : label];
      }
    }
    out[i] = (T)label;
  }
}

#define DBFS_BY_VERTEX(width, type)                                                                               \
  extern "C" __global__ void dbfs_by_vertex_##width(const u32* labels, const u32* position, const u32* vertex,    \
                                                    i64 first, i64 count, u32 rank, u32 ranks, u32 rows, type* out) { \
    by_vertex(labels, position, vertex, first, count, rank, ranks, rows, out);                                    \
  }

DBFS_BY_VERTEX(1, u8)
DBFS_BY_VERTEX(2, unsigned short)
DBFS_BY_VERTEX(4, u32)
