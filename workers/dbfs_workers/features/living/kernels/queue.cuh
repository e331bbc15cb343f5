// The queues of rows: in global memory for rounds of all blocks, in shared memory for those of the first block.
#pragma once
#include "features/living/kernels/launch.cuh"

namespace dbfs {

// A row's edges of one direction.
struct Range {
  i64 begin, end;
};

// A place in a list of `*size` entries for each lane that has one to add. All lanes of a warp call it.
__device__ __forceinline__ u32 reserve(u32* size, bool has) {
  const u32 ballot = __ballot_sync(kAll, has);
  u32 first = 0;
  if (ballot && lane_id() == __ffs(ballot) - 1) first = atomicAdd(size, (u32)__popc(ballot));
  return ballot ? __shfl_sync(kAll, first, __ffs(ballot) - 1) + __popc(ballot & lanes_below()) : 0;
}

__device__ __forceinline__ void put(const Repair& a, Thread& t, u32* list, u32 place, u32 row) {
  if (place < a.capacity) {
    list[place] = row;
  } else {
    t.stop = true;
  }
}

__device__ __forceinline__ Range edges_of(const i64* offsets, u32 row) {
  return {__ldg(&offsets[row]), __ldg(&offsets[row + 1])};
}

// The edges that a queued row will look at, for the block's own queue. Loaded before the row is known to be queued, so
// that both waits pass at once.
template <bool kWhole>
__device__ __forceinline__ Range edges_ahead(const i64* offsets, u32 row, bool valid) {
  return !kWhole && valid ? edges_of(offsets, row) : Range{0, 0};
}

// Queue a row for round `to`, with `edges_ahead`. All lanes of a warp call it.
template <bool kWhole>
__device__ __forceinline__ void queue_row(const Repair& a, Thread& t, Shared& s, u32 row, Range edges, bool has, u32 to) {
  if (kWhole) {
    const u32 place = reserve(&a.control[kTails + (to & 3)], has);
    if (has) put(a, t, a.queues[to & 1], place, row);
    return;
  }
  const u32 place = reserve(&s.tails[to & 3], has);
  if (!has) return;
  if (place < kFew) {
    Entries& entries = s.entries[to & 1];
    entries.rows[place] = row;
    entries.begins[place] = edges.begin;
    entries.degrees[place] = (u32)(edges.end - edges.begin);
  } else {
    put(a, t, a.queues[to & 1], place, row);
  }
}

// Take the queued row at `index` of the round, and its edges.
template <bool kWhole>
__device__ __forceinline__ u32 take_row(const Repair& a, const Thread& t, const Shared& s, const i64* offsets, u32 index,
                                        Range& edges) {
  if (kWhole) {
    const u32 row = load_shared_by_gang(&a.queues[t.round & 1][index]);
    edges = edges_of(offsets, row);
    return row;
  }
  const Entries& entries = s.entries[t.round & 1];
  edges = {entries.begins[index], entries.begins[index] + entries.degrees[index]};
  return entries.rows[index];
}

}  // namespace dbfs
