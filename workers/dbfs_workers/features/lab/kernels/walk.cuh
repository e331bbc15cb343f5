// Walks along adjacency lists without waiting for the block, and labels without queues: for strategies that find the
// frontier in the labels, or in status bytes.
#pragma once
#include "features/lab/kernels/problem.cuh"

namespace dbfs {
namespace lab {

// Label a vertex that has no label yet. Threads that find it at once all label it, with the same distance.
__device__ __forceinline__ bool label_unvisited(const LabArguments& a, u32 vertex, u32 parent, Tally& tally) {
  if (__ldcg(&a.labels[vertex]) >= 0) {
    ++tally.label_culled;
    return false;
  }
  set_label(a, vertex, parent);
  ++tally.labelled;
  return true;
}

// Keep the vertices that have no label and that no other thread labels; label them.
__device__ __forceinline__ void claim_unvisited(const LabArguments& a, Items& items, Tally& tally) {
  drop_labelled(a, items, tally);
  label_claimed(a, items, tally);
}

// Return whether a row is in the frontier: its label is the distance before this launch's.
__device__ __forceinline__ bool in_frontier(const LabArguments& a, u32 row) {
  return a.labels[row] == i32(distance(a)) - 1;
}

// Each thread walks its own list.
template <class Visit>
__device__ __forceinline__ void walk_alone(const LabArguments& a, List list, Visit visit) {
  while (list.size() > 0) visit(take_one(a, list), list.vertex);
}

// The lanes of a virtual warp (Hong et al. 2011), `a.width` lanes side by side, walk the lists that they hold together, one
// list after another.
template <class Visit>
__device__ __forceinline__ void walk_by_virtual_warp(const LabArguments& a, const List& own, Visit visit) {
  const u32 first = lane() / a.width * a.width;
  u32 rest = __ballot_sync(kAll, own.size() > 0) & kAll >> (kLanes - a.width) << first;
  for (; __any_sync(kAll, rest != 0); rest &= rest - 1) {
    const u32 from = rest ? __ffs(rest) - 1 : lane();
    const i64 begin = __shfl_sync(kAll, own.begin, from), end = __shfl_sync(kAll, own.end, from);
    const u32 vertex = __shfl_sync(kAll, own.vertex, from);
    if (!rest) continue;
    for (i64 at = begin + lane() - first; at < end; at += a.width) visit(a.columns[at], vertex);
  }
}

}  // namespace lab
}  // namespace dbfs
