// Neighbour gathering (Merrill 2012, section 4.1): the threads of a block read the adjacency lists that they hold, one
// list or none each, and hand the neighbours to `visit(batch)`, up to kItems a thread at a time.
//
// All threads of a block call `visit` together, with or without neighbours, so that it may wait for the block. Several
// neighbours a thread keep several reads under way, and share the waits.
#pragma once
#include "lab/block.cuh"

namespace dbfs {
namespace lab {

struct GatherScratch {
  BlockScratch block;
  i64 places[kThreads * kItems];
  u32 vertices[kThreads * kItems];
  List list;
  u32 winner;
};

// Every thread walks its own list. The longest list of the block holds up all threads.
template <class Visit>
__device__ __forceinline__ void gather_serially(const LabArguments& a, List list, Visit visit) {
  for (; __syncthreads_or(list.size() > 0); list.begin += kItems) visit(batch_of(a, list, 0, 1));
}

// A warp takes the lists of its lanes one after another. Short lists leave lanes idle.
template <class Visit>
__device__ __forceinline__ void gather_by_warps(const LabArguments& a, const List& own, Visit visit) {
  bool open = own.size() > 0;
  List list = no_list();
  while (true) {
    if (list.size() <= 0) {
      const u32 waiting = __ballot_sync(kAll, open);
      if (waiting) {
        const u32 winner = __ffs(waiting) - 1;
        list = List{__shfl_sync(kAll, own.begin, winner), __shfl_sync(kAll, own.end, winner),
                    __shfl_sync(kAll, own.vertex, winner)};
        if (lane() == winner) open = false;
      }
    }
    if (!__syncthreads_or(list.size() > 0)) return;
    visit(batch_of(a, list, lane(), kLanes));
    list.begin += kLanes * kItems;
  }
}

// The block lines up the places of all neighbours by a prefix sum over the lists' lengths, and takes as many at a time
// as its threads hold. No thread idles, but a long list is lined up by one thread.
template <class Visit>
__device__ __forceinline__ void gather_by_scan(const LabArguments& a, List list, GatherScratch& s, Visit visit) {
  constexpr u32 kRound = kThreads * kItems;
  u64 total, rank = block_sums(list.size() > 0 ? list.size() : 0, s.block, total);
  for (u64 done = 0; done < total; done += kRound) {
    for (; list.size() > 0 && rank < done + kRound; ++rank, ++list.begin) {
      s.places[rank - done] = list.begin;
      s.vertices[rank - done] = list.vertex;
    }
    __syncthreads();
    Batch batch;
#pragma unroll
    for (u32 item = 0; item < kItems; ++item) {
      const u32 at = item * kThreads + threadIdx.x;
      const bool valid = at < total - done;
      batch.valid |= u32(valid) << item;
      batch.ids[item] = valid ? a.columns[s.places[at]] : 0;
      batch.vertices[item] = valid ? s.vertices[at] : 0;
    }
    __syncthreads();
    visit(batch);
  }
}

// The whole block takes the lists that have a neighbour for each of its threads, one after another. The lists taken are
// emptied.
template <class Visit>
__device__ __forceinline__ void gather_by_block(const LabArguments& a, List& list, GatherScratch& s, Visit visit) {
  while (__syncthreads_or(list.size() >= kThreads)) {
    if (list.size() >= kThreads) atomicExch(&s.winner, threadIdx.x);
    __syncthreads();
    if (s.winner == threadIdx.x && list.size() >= kThreads) {
      s.list = list;
      list = no_list();
    }
    __syncthreads();
    List taken = s.list;
    for (; taken.size() > 0; taken.begin += kThreads * kItems) visit(batch_of(a, taken, threadIdx.x, kThreads));
  }
}

// One of `parts` blocks takes its part of a list, all its threads together.
template <class Visit>
__device__ __forceinline__ void gather_part(const LabArguments& a, const List& list, u32 part, u32 parts, Visit visit) {
  constexpr u32 kRound = kThreads * kItems;
  List rest{list.begin + i64(part) * kRound, list.end, list.vertex};
  for (; rest.size() > 0; rest.begin += i64(parts) * kRound) visit(batch_of(a, rest, threadIdx.x, kThreads));
}

// Gather as the policy says. SCAN_WARP_CTA gives each list to the smallest unit that its length fills.
template <class Visit>
__device__ __forceinline__ void gather(const LabArguments& a, List list, GatherScratch& s, Visit visit) {
  switch (Gathering(gathering(a))) {
    case Gathering::kSerial:
      gather_serially(a, list, visit);
      break;
    case Gathering::kWarp:
      gather_by_warps(a, list, visit);
      break;
    case Gathering::kScan:
      gather_by_scan(a, list, s, visit);
      break;
    case Gathering::kScanWarpCta: {
      gather_by_block(a, list, s, visit);
      const bool long_list = list.size() >= kLanes;
      gather_by_warps(a, long_list ? list : no_list(), visit);
      gather_by_scan(a, long_list ? no_list() : list, s, visit);
      break;
    }
  }
}

}  // namespace lab
}  // namespace dbfs
