// What every strategy of the laboratory works on: the graph, the labels, the policy, and the tally of a thread.
//
// The host gives the policy in the arguments. NVRTC gets it as constants too (DBFS_LAB_...), so that a kernel holds the
// code of one policy only.
#pragma once
#include "generated/lab.cuh"

#ifndef DBFS_LAB_THREADS
#define DBFS_LAB_THREADS 256
#endif
#ifndef DBFS_LAB_GATHERING
#define DBFS_LAB_GATHERING a.gathering
#define DBFS_LAB_STATUS a.status
#define DBFS_LAB_CULLING a.culling
#endif

namespace dbfs {
namespace lab {

// Threads of a block. The kernels' bounds ask for one block a multiprocessor: given the threads alone, ptxas spills
// registers of some kernels to fit more blocks.
constexpr u32 kThreads = DBFS_LAB_THREADS;
constexpr u32 kLanes = 32;
constexpr u32 kWarps = kThreads / kLanes;
constexpr u32 kAll = 0xffffffffu;

__device__ __forceinline__ u32 gathering(const LabArguments& a) { return DBFS_LAB_GATHERING; }
__device__ __forceinline__ u32 status(const LabArguments& a) { return DBFS_LAB_STATUS; }
__device__ __forceinline__ u32 culling(const LabArguments& a) { return DBFS_LAB_CULLING; }

__device__ __forceinline__ u32 lane() { return threadIdx.x % kLanes; }
__device__ __forceinline__ u32 warp() { return threadIdx.x / kLanes; }

// Entries of the input queue. Behind a launch that the host did not wait for, they are those that it appended and that
// found room.
__device__ __forceinline__ u64 in_size(const LabArguments& a) {
  return a.before && a.before[kQueued] < a.in_size ? a.before[kQueued] : a.in_size;
}

// A thread's adjacency list: columns[begin, end) of a vertex; an empty range is no list.
struct List {
  i64 begin, end;
  u32 vertex;

  __device__ __forceinline__ i64 size() const { return end - begin; }
};

__device__ __forceinline__ List no_list() { return List{0, 0, 0}; }

__device__ __forceinline__ List list_of(const LabArguments& a, u32 vertex) {
  return List{a.offsets[vertex], a.offsets[vertex + 1], vertex};
}

// Threads that find a vertex in one launch write the same distance; which parent stays is left open.
__device__ __forceinline__ void set_label(const LabArguments& a, u32 vertex, u32 parent) {
  a.labels[vertex] = a.distance;
  if (a.parents) a.parents[vertex] = parent;
}

// What one thread counts in a launch. The counters of the grid get a warp's sums once, at the end.
struct Tally {
  u32 looked_at = 0, expanded = 0, bitmask_culled = 0, label_culled = 0, warp_culled = 0, history_culled = 0,
      labelled = 0;
  u64 edges = 0;

  __device__ __forceinline__ List expand(const LabArguments& a, u32 vertex) {
    const List list = list_of(a, vertex);
    ++expanded;
    edges += list.size();
    return list;
  }

  // All threads of the block call it.
  __device__ __forceinline__ void add_to(u64* counters) const {
    add(counters + kExpanded, expanded);
    add(counters + kEdges, edges);
    add(counters + kLookedAt, looked_at);
    add(counters + kBitmaskCulled, bitmask_culled);
    add(counters + kLabelCulled, label_culled);
    add(counters + kWarpCulled, warp_culled);
    add(counters + kHistoryCulled, history_culled);
    add(counters + kLabelled, labelled);
  }

 private:
  static __device__ __forceinline__ void add(u64* counter, u64 value) {
    for (u32 step = kLanes / 2; step; step >>= 1) value += __shfl_xor_sync(kAll, value, step);
    if (lane() == 0 && value) atomicAdd(counter, value);
  }
};

}  // namespace lab
}  // namespace dbfs
