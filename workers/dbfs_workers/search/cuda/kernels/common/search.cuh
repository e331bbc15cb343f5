// Bottom-up search (Beamer 2012): a row looks through its in-neighbours for one that is in the frontier bitmap.
//
// A lane tries up to kSerialEdges neighbours of its row alone. Then the warp helps the rows that are left, one after
// another: the lanes of a hub's row would hold up all others. An edge costs 4 bytes of columns and one bit.
#pragma once
#include "search/cuda/kernels/common/memory.cuh"

namespace dbfs {

// One lane tries columns[begin, end), kInFlight loads at a time. Returns the first neighbour in the frontier, or
// kNoVertex. `begin` ends behind the last neighbour tried.
template <u32 kInFlight>
__device__ __forceinline__ u32 search_alone(const u32* columns, const u32* frontier, i64& begin, i64 end) {
  while (begin < end) {
    u32 ids[kInFlight], hits = 0;
#pragma unroll
    for (u32 j = 0; j < kInFlight; ++j) ids[j] = begin + j < end ? __ldg(&columns[begin + j]) : kNoVertex;
#pragma unroll
    for (u32 j = 0; j < kInFlight; ++j) hits |= (ids[j] != kNoVertex && has_bit(frontier, ids[j])) << j;
    if (hits) {
      begin += __ffs(hits);
      u32 parent = ids[0];
#pragma unroll
      for (u32 j = kInFlight; j-- > 0;) {
        if (hits >> j & 1) parent = ids[j];
      }
      return parent;
    }
    begin = begin + kInFlight < end ? begin + kInFlight : end;
  }
  return kNoVertex;
}

// All lanes try the columns[begin, end) of one row, kLoads each at a time. Returns a neighbour in the frontier, or
// kNoVertex. `begin` ends behind the last neighbour tried; with kExact behind the first neighbour found.
template <u32 kLoads, bool kExact>
__device__ __forceinline__ u32 search_together(const u32* columns, const u32* frontier, i64& begin, i64 end) {
  while (begin < end) {
    u32 ids[kLoads];
#pragma unroll
    for (u32 j = 0; j < kLoads; ++j) {
      const i64 place = begin + lane_id() + j * kLanes;
      ids[j] = place < end ? __ldg(&columns[place]) : kNoVertex;
    }
    const i64 next = begin + kLoads * kLanes < end ? begin + kLoads * kLanes : end;
    u32 found = kNoVertex;
#pragma unroll
    for (u32 j = kLoads; j-- > 0;) {
      if (ids[j] != kNoVertex && has_bit(frontier, ids[j])) found = ids[j];
    }
    const u32 ballot = __ballot_sync(kAll, found != kNoVertex);
    static_assert(!kExact || kLoads == 1, "the first of several loads is not the first in the list");
    begin = kExact && ballot ? begin + __ffs(ballot) : next;
    if (ballot) return __shfl_sync(kAll, found, __ffs(ballot) - 1);
  }
  return kNoVertex;
}

// Each lane searches its own row's columns[begin, end); an empty range is no row. All lanes call it. Returns the parent
// or kNoVertex; `begin` ends as above, so that the difference counts the edges looked at.
template <u32 kInFlight, u32 kLoads, bool kExact>
__device__ __forceinline__ u32 search_rows(const u32* columns, const u32* frontier, i64& begin, i64 end) {
  u32 parent = search_alone<kInFlight>(columns, frontier, begin,
                                       begin + kSerialEdges < end ? begin + kSerialEdges : end);
  for (u32 rest = __ballot_sync(kAll, parent == kNoVertex && begin < end); rest; rest &= rest - 1) {
    const u32 from = __ffs(rest) - 1;
    const i64 rest_end = __shfl_sync(kAll, end, from);
    i64 rest_begin = __shfl_sync(kAll, begin, from);
    const u32 answer = search_together<kLoads, kExact>(columns, frontier, rest_begin, rest_end);
    if (lane_id() == from) {
      parent = answer;
      begin = rest_begin;
    }
  }
  return parent;
}

}  // namespace dbfs
