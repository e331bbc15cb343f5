// Neighbour gathering (Merrill 2012, section 4.1): the threads of a block read the adjacency lists that they hold, one
// list or none each, and hand the neighbours to `visit(items)`, up to kItems a thread at a time.
//
// Several neighbours a thread keep several reads under way, and share the waits.
#pragma once
#include "features/lab/kernels/block.cuh"

namespace dbfs {
namespace lab {

struct GatherScratch {
  BlockScratch block;
  u16 holders[kThreads * kItems];
  List lists[kThreads];
  List list;
  u32 winner;
};

// Whether any thread of the block, or this one, has something to do: of the block if it walks `together`.
template <bool kTogether>
__device__ __forceinline__ bool any_left(bool left) {
  return kTogether ? bool(__syncthreads_or(left)) : left;
}

// The list that one lane of the warp holds.
__device__ __forceinline__ List list_of_lane(const List& own, u32 from) {
  return List{__shfl_sync(kAll, own.begin, from), __shfl_sync(kAll, own.end, from), __shfl_sync(kAll, own.place, from),
              __shfl_sync(kAll, own.vertex, from), __shfl_sync(kAll, own.page, from)};
}

// Every thread walks its own list. The longest list of the block holds up all threads.
template <bool kTogether, class Visit>
__device__ __forceinline__ void gather_serially(const LabArguments& a, List list, Visit visit) {
  while (any_left<kTogether>(list.size() > 0)) visit(take_some(a, list));
}

// Each warp takes the lists of its own lanes one after another. Short lists leave lanes idle, and a warp with long lists
// holds up the block. On pages, a warp goes to a page together (Tödling 2019, section 7).
template <bool kTogether, class Visit>
__device__ __forceinline__ void gather_by_warps(const LabArguments& a, const List& own, Visit visit) {
  u32 rest = __ballot_sync(kAll, own.size() > 0);
  List list = no_list();
  for (;;) {
    if (list.size() <= 0 && rest) {
      list = list_of_lane(own, __ffs(rest) - 1);
      rest &= rest - 1;
    }
    if (!any_left<kTogether>(list.size() > 0)) return;
    if (on_pages(a)) {
      visit(take_pages(a, list));
    } else {
      visit(items_of(a, list, lane(), kLanes));
      list.skip(kLanes * kItems);
    }
  }
}

// The block lines up the places of all neighbours by a prefix sum over the lists' lengths, and takes as many at a time
// as its threads hold. No thread idles, but a long list is lined up by one thread.
template <class Visit>
__device__ __forceinline__ void gather_by_scan(const LabArguments& a, const List& list, GatherScratch& s, Visit visit) {
  constexpr u32 kRound = kThreads * kItems;
  const u64 size = list.size() > 0 ? list.size() : 0;
  u64 total, at = block_sums(size, s.block, total);
  const u64 end = at + size;
  // The neighbours' places in the graph and in the output, from their places in the line.
  s.lists[threadIdx.x] = List{list.begin - i64(at), list.end, list.place - i64(at), list.vertex, 0};
  for (u64 done = 0; done < total; done += kRound) {
    for (; at < end && at < done + kRound; ++at) s.holders[at - done] = threadIdx.x;
    __syncthreads();
    Items items;
#pragma unroll
    for (u32 item = 0; item < kItems; ++item) {
      const u32 of_round = item * kThreads + threadIdx.x;
      const bool valid = done + of_round < total;
      const List& holder = s.lists[valid ? s.holders[of_round] : 0];
      items.valid |= u32(valid) << item;
      items.ids[item] = valid ? a.columns[holder.begin + i64(done + of_round)] : 0;
      items.vertices[item] = holder.vertex;
      items.places[item] = holder.place + i64(done + of_round);
    }
    __syncthreads();
    visit(items);
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
    for (; taken.size() > 0; taken.skip(kThreads * kItems)) visit(items_of(a, taken, threadIdx.x, kThreads));
  }
}

// One of `parts` blocks takes its part of a list, all its threads together. On pages, the warps of the blocks take kItems
// pages one after another.
template <class Visit>
__device__ __forceinline__ void gather_part(const LabArguments& a, const List& list, u32 part, u32 parts, Visit visit) {
  constexpr u32 kRound = kThreads * kItems;
  List rest = list;
  if (on_pages(a)) {
    const u64 round = u64(parts) * kWarps * kItems, first = u64(part) * kWarps * kItems;
    skip_pages(a, rest, first + warp() * kItems);
    for (u64 page = first; i64(page * kPageColumns) < list.size(); page += round) {
      visit(take_pages(a, rest));
      skip_pages(a, rest, round - kItems);
    }
    return;
  }
  for (rest.skip(i64(part) * kRound); rest.size() > 0; rest.skip(i64(parts) * kRound)) {
    visit(items_of(a, rest, threadIdx.x, kThreads));
  }
}

// Gather as the policy says. SCAN_WARP_CTA gives each list to the smallest unit that its length fills. No prefix sum finds
// a neighbour's page, so on pages all but SERIAL is WARP. All threads of the block call `visit` together; with kTogether
// false they need not, so that none waits for the others' lists.
template <bool kTogether = true, class Visit>
__device__ __forceinline__ void gather(const LabArguments& a, List list, GatherScratch& s, Visit visit) {
  const Gathering chosen = Gathering(gathering(a));
  switch (on_pages(a) && chosen != Gathering::kSerial ? Gathering::kWarp : chosen) {
    case Gathering::kSerial:
      gather_serially<kTogether>(a, list, visit);
      break;
    case Gathering::kWarp:
      gather_by_warps<kTogether>(a, list, visit);
      break;
    case Gathering::kScan:
      gather_by_scan(a, list, s, visit);
      break;
    case Gathering::kScanWarpCta: {
      gather_by_block(a, list, s, visit);
      const bool long_list = list.size() >= kLanes;
      gather_by_warps<kTogether>(a, long_list ? list : no_list(), visit);
      gather_by_scan(a, long_list ? no_list() : list, s, visit);
      break;
    }
  }
}

// Copy the neighbours of a tile's lists to the output queue, each list to the place that one prefix sum over the lists'
// lengths gives it (Merrill 2012, figure 2), whichever unit gathers it. The block reserves places once, as `start` says.
template <class Start>
__device__ __forceinline__ void expand_lists(const LabArguments& a, List list, GatherScratch& s, Start start) {
  u64 total;
  list.place = block_sums(list.size(), s.block, total, start);
  if (total) gather<false>(a, list, s, [&](const Items& items) { write(a, items); });
}

}  // namespace lab
}  // namespace dbfs
