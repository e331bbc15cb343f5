// Which neighbours go on (Merrill 2012, section 4.2): the lookup of a vertex's status, and the culling of duplicates, as
// the policy says. With Status::kClaims, an atomic operation then lets one of several threads pass.
#pragma once
#include "search/cuda/kernels/common/culling.cuh"
#include "features/lab/kernels/problem.cuh"

namespace dbfs {
namespace lab {

using CullScratch = CullTables<kWarps>;

// Drop the vertices whose bit is set, and set the bits of the others.
template <u32 kSize>
__device__ __forceinline__ void drop_marked(const LabArguments& a, ItemsOf<kSize>& items, Tally& tally) {
  u8 found[kSize];
#pragma unroll
  for (u32 item = 0; item < kSize; ++item) found[item] = items.has(item) ? marks_beside(a.bitmask, items.ids[item]) : 0;
#pragma unroll
  for (u32 item = 0; item < kSize; ++item) {
    if (!items.has(item) || !marked_or_mark(a.bitmask, items.ids[item], found[item])) continue;
    ++tally.bitmask_culled;
    items.drop(item);
  }
}

// Drop the vertices that were visited. Where the bitmask misses one, the label decides.
template <u32 kSize>
__device__ __forceinline__ void drop_visited(const LabArguments& a, ItemsOf<kSize>& items, Tally& tally) {
  if (Status(status(a)) != Status::kLabels) drop_marked(a, items, tally);
  drop_labelled(a, items, tally);
}

// Label the vertices that are left; with Status::kClaims, those that no other thread labels, and the others are dropped.
template <u32 kSize>
__device__ __forceinline__ void label(const LabArguments& a, ItemsOf<kSize>& items, Tally& tally) {
  if (Status(status(a)) == Status::kClaims) {
    label_claimed(a, items, tally);
  } else {
    label_all(a, items, tally);
  }
}

// Return whether the thread goes on with its vertex, after the culling that the policy says. All threads call it.
__device__ __forceinline__ bool passes_culling(const LabArguments& a, bool valid, u32 vertex, CullScratch& s,
                                               Tally& tally) {
  if (culling(a) & u32(Culling::kWarp)) {
    if (culled_by_warp(valid, vertex, s)) {
      ++tally.warp_culled;
      valid = false;
    }
  }
  if (culling(a) & u32(Culling::kHistory)) {
    if (culled_by_history(valid, vertex, s)) {
      ++tally.history_culled;
      valid = false;
    }
  }
  return valid;
}

// Drop the duplicates of items. All threads call it.
template <u32 kSize>
__device__ __forceinline__ void drop_duplicates(const LabArguments& a, ItemsOf<kSize>& items, CullScratch& s, Tally& tally) {
#pragma unroll
  for (u32 item = 0; item < kSize; ++item) {
    if (!passes_culling(a, items.has(item), items.ids[item], s, tally)) items.drop(item);
  }
}

// Contract items of the edge queue: drop what was visited and what is a duplicate, and label the rest. All threads call
// it.
template <u32 kSize>
__device__ __forceinline__ void contract(const LabArguments& a, ItemsOf<kSize>& items, CullScratch& s, Tally& tally) {
  drop_visited(a, items, tally);
  drop_duplicates(a, items, s, tally);
  label(a, items, tally);
}

}  // namespace lab
}  // namespace dbfs
