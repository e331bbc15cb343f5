// What every strategy of the laboratory works on: the graph, the labels, the policy, and the tally of a thread.
//
// The host gives the policy in the arguments. NVRTC gets it as constants too (DBFS_LAB_...), so that a kernel holds the
// code of one policy only.
#pragma once
#include "generated/lab.cuh"

#ifndef DBFS_LAB_THREADS
#define DBFS_LAB_THREADS 256
#endif
#ifndef DBFS_LAB_ITEMS
#define DBFS_LAB_ITEMS 2
#endif
#ifndef DBFS_LAB_GATHERING
#define DBFS_LAB_GATHERING a.gathering
#define DBFS_LAB_STATUS a.status
#define DBFS_LAB_CULLING a.culling
#define DBFS_LAB_TILES a.tiles
#define DBFS_LAB_NEIGHBOURS a.neighbours
#define DBFS_LAB_STORAGE a.storage
#endif

namespace dbfs {
namespace lab {

// Threads of a block. The kernels' bounds ask for one block a multiprocessor: given the threads alone, ptxas spills
// registers of some kernels to fit more blocks.
constexpr u32 kThreads = DBFS_LAB_THREADS;
constexpr u32 kLanes = 32;
constexpr u32 kWarps = kThreads / kLanes;
constexpr u32 kAll = 0xffffffffu;
constexpr u32 kItems = DBFS_LAB_ITEMS;  // entries or neighbours that a thread holds at a time

__device__ __forceinline__ u32 gathering(const LabArguments& a) { return DBFS_LAB_GATHERING; }
__device__ __forceinline__ u32 status(const LabArguments& a) { return DBFS_LAB_STATUS; }
__device__ __forceinline__ u32 culling(const LabArguments& a) { return DBFS_LAB_CULLING; }
__device__ __forceinline__ Tiles tiles(const LabArguments& a) { return Tiles(DBFS_LAB_TILES); }
__device__ __forceinline__ bool culls_neighbours(const LabArguments& a) {
  return Neighbours(DBFS_LAB_NEIGHBOURS) == Neighbours::kCull;
}
__device__ __forceinline__ bool on_pages(const LabArguments& a) { return Storage(DBFS_LAB_STORAGE) == Storage::kPages; }

__device__ __forceinline__ u32 lane() { return threadIdx.x % kLanes; }
__device__ __forceinline__ u32 warp() { return threadIdx.x / kLanes; }

// A chain of launches may be recorded once and launched often, so what differs lies in memory.
__device__ __forceinline__ u32 distance(const LabArguments& a) { return u32(a.start[kStartDistance]) + a.distance; }
__device__ __forceinline__ u32 launch(const LabArguments& a) { return u32(a.start[kStartLaunch]) + a.launch; }

// Entries of the input queue. Behind a launch that the host did not wait for, they are those that it appended and that
// found room. A queue of a length that the launch is not for counts as empty, so that the chain ends.
__device__ __forceinline__ u64 in_size(const LabArguments& a) {
  const u64 size = a.before && a.before[kQueued] < a.in_size ? a.before[kQueued] : a.in_size;
  return size < a.least || size > a.most ? 0 : size;
}

// A thread's adjacency list: columns[begin, end) of a vertex; an empty range is no list. `place` is that of the neighbour
// at `begin` in the output queue, where lists have places there. On pages, begin and end count the list's own neighbours,
// and `page` has the one at `begin`.
struct List {
  i64 begin, end, place;
  u32 vertex, page;

  __device__ __forceinline__ i64 size() const { return end - begin; }

  __device__ __forceinline__ void skip(i64 neighbours) {
    begin += neighbours;
    place += neighbours;
  }
};

__device__ __forceinline__ List no_list() { return List{0, 0, 0, 0, 0}; }

__device__ __forceinline__ List list_of(const LabArguments& a, u32 vertex) {
  if (!on_pages(a)) return List{a.offsets[vertex], a.offsets[vertex + 1], 0, vertex, 0};
  const u64 list = a.lists[vertex];
  return List{0, i64(list & kAll), 0, vertex, u32(list >> 32)};
}

__device__ __forceinline__ u32* page_at(const LabArguments& a, u32 page) {
  return a.pages + u64(page) * (kPageColumns + 1);
}

// The first neighbour of a list, which then begins behind it.
__device__ __forceinline__ u32 take_one(const LabArguments& a, List& list) {
  u32 neighbour;
  if (on_pages(a)) {
    const u32* words = page_at(a, list.page);
    const u32 at = u32(list.begin) % kPageColumns;
    neighbour = words[at];
    if (at + 1 == kPageColumns) list.page = words[kPageColumns];
  } else {
    neighbour = a.columns[list.begin];
  }
  list.skip(1);
  return neighbour;
}

// The vertices that a thread holds at a time, those whose neighbours they are, and their places in the output queue, where
// their lists have places.
template <u32 kSize>
struct ItemsOf {
  u32 ids[kSize];
  u32 vertices[kSize];
  i64 places[kSize];
  u32 valid = 0;  // a bit for each item

  __device__ __forceinline__ bool has(u32 item) const { return valid >> item & 1; }
  __device__ __forceinline__ void drop(u32 item) { valid &= ~(1u << item); }
};

using Items = ItemsOf<kItems>;

// The neighbours of a list at its places `first`, `first + step`, ...
__device__ __forceinline__ Items items_of(const LabArguments& a, const List& list, u32 first, u32 step) {
  Items items;
#pragma unroll
  for (u32 item = 0; item < kItems; ++item) {
    const i64 at = list.begin + first + item * step;
    const bool valid = at < list.end;
    items.valid |= u32(valid) << item;
    items.ids[item] = valid ? a.columns[at] : 0;
    items.vertices[item] = list.vertex;
    items.places[item] = list.place + first + item * step;
  }
  return items;
}

// The first neighbours of a list, which then begins behind them.
__device__ __forceinline__ Items take_some(const LabArguments& a, List& list) {
  if (!on_pages(a)) {
    const Items items = items_of(a, list, 0, 1);
    list.skip(kItems);
    return items;
  }
  Items items;
#pragma unroll
  for (u32 item = 0; item < kItems; ++item) {
    items.valid |= u32(list.size() > 0) << item;
    items.vertices[item] = list.vertex;
    items.places[item] = list.place;
    items.ids[item] = list.size() > 0 ? take_one(a, list) : 0;
  }
  return items;
}

__device__ __forceinline__ u32 pages_of(u32 neighbours) { return (neighbours + kPageColumns - 1) / kPageColumns; }

// The numbers of pages, and the lane's word of each.
template <u32 kSize>
struct PagesOf {
  u32 numbers[kSize];
  u32 words[kSize];
};

// The next pages of a list, of which there are `count` or kSize. Pages that were taken at once lie one behind another, so
// that a warp reads these at once, and only those that the links deny once more.
template <u32 kSize>
__device__ __forceinline__ PagesOf<kSize> read_pages(const LabArguments& a, u32 first, u32 count) {
  PagesOf<kSize> pages;
#pragma unroll
  for (u32 at = 0; at < kSize; ++at) {
    pages.numbers[at] = first + at;
    pages.words[at] = at < count ? page_at(a, first + at)[lane()] : 0;
  }
#pragma unroll
  for (u32 at = 1; at < kSize; ++at) {
    pages.numbers[at] = __shfl_sync(kAll, pages.words[at - 1], kPageColumns);
    if (at < count && pages.numbers[at] != first + at) pages.words[at] = page_at(a, pages.numbers[at])[lane()];
  }
  return pages;
}

// The neighbours on a list's next pages, a page an item and a neighbour a lane; the list then begins behind them. The lanes
// of a warp hold the same list.
__device__ __forceinline__ Items take_pages(const LabArguments& a, List& list) {
  const PagesOf<kItems> pages = read_pages<kItems>(a, list.page, list.size() > 0 ? pages_of(list.size()) : 0);
  Items items;
#pragma unroll
  for (u32 item = 0; item < kItems; ++item) {
    items.valid |= u32(lane() < kPageColumns && lane() < list.size()) << item;
    items.ids[item] = pages.words[item];
    items.vertices[item] = list.vertex;
    items.places[item] = list.place + lane();
    list.skip(kPageColumns);
  }
  list.page = __shfl_sync(kAll, pages.words[kItems - 1], kPageColumns);
  return items;
}

// Begin a list so many pages later; return the page before. A warp follows as many links at a time as it has lanes, while
// the pages lie one behind another.
__device__ __forceinline__ u32 skip_pages(const LabArguments& a, List& list, u64 pages) {
  u32 last = kAll;
  while (pages && list.size() > 0) {
    const u32 link = lane() < pages ? page_at(a, list.page + lane())[kPageColumns] : 0;
    const u32 straight = __ballot_sync(kAll, lane() < pages && link == list.page + lane() + 1);
    const u32 held = straight == kAll ? kLanes : __ffs(~straight), hops = pages < held ? pages : held;
    last = list.page + hops - 1;
    list.page = __shfl_sync(kAll, link, hops - 1);
    list.skip(i64(hops) * kPageColumns);
    pages -= hops;
  }
  return last;
}

// Threads that find a vertex in one launch write the same distance; which parent stays is left open.
__device__ __forceinline__ void set_label(const LabArguments& a, u32 vertex, u32 parent) {
  a.labels[vertex] = distance(a);
  if (a.parents) a.parents[vertex] = parent;
}

// Return whether this thread, of all that try, sets a vertex's label.
__device__ __forceinline__ bool claims(const LabArguments& a, u32 vertex) {
  const i32 unreached = -1;
  return atomicCAS(&a.labels[vertex], unreached, i32(distance(a))) == unreached;
}

// What one thread counts in a launch.
struct Tally {
  u32 looked_at = 0, expanded = 0, bitmask_culled = 0, label_culled = 0, warp_culled = 0, history_culled = 0,
      claim_culled = 0, labelled = 0;
  u64 edges = 0;

  __device__ __forceinline__ List expand(const LabArguments& a, u32 vertex) {
    const List list = list_of(a, vertex);
    ++expanded;
    edges += list.size();
    return list;
  }

  // All threads of the block call it.
  __device__ __forceinline__ void add_to(u64* counters) const;
};

// The counters from kExpanded to kLabelled, in their order.
constexpr u32 kTallies = kLabelled - kExpanded + 1;
static_assert(kTallies == 9, "add_block lists them");

// Add the block's sums to the counters of the grid, by one atomic operation each.
static __device__ __forceinline__ void add_block(const Tally& t, u64* counters) {
  __shared__ u64 sums[kTallies][kWarps];
  const u64 own[kTallies] = {t.expanded,    t.edges,          t.looked_at,    t.bitmask_culled, t.label_culled,
                             t.warp_culled, t.history_culled, t.claim_culled, t.labelled};
  __syncthreads();
#pragma unroll
  for (u32 which = 0; which < kTallies; ++which) {
    u64 value = own[which];
    for (u32 step = kLanes / 2; step; step >>= 1) value += __shfl_xor_sync(kAll, value, step);
    if (lane() == 0) sums[which][warp()] = value;
  }
  __syncthreads();
  if (threadIdx.x >= kTallies) return;
  u64 sum = 0;
  for (u32 of = 0; of < kWarps; ++of) sum += sums[threadIdx.x][of];
  if (sum) atomicAdd(counters + kExpanded + threadIdx.x, sum);
}

__device__ __forceinline__ void Tally::add_to(u64* counters) const { add_block(*this, counters); }

// Drop the vertices that have a label. All labels are read before any is looked at.
template <u32 kSize>
__device__ __forceinline__ void drop_labelled(const LabArguments& a, ItemsOf<kSize>& items, Tally& tally) {
  i32 labels[kSize];
#pragma unroll
  for (u32 item = 0; item < kSize; ++item) labels[item] = items.has(item) ? __ldcg(&a.labels[items.ids[item]]) : -1;
#pragma unroll
  for (u32 item = 0; item < kSize; ++item) {
    if (labels[item] < 0) continue;
    ++tally.label_culled;
    items.drop(item);
  }
}

// Label the vertices that no other thread labels: by an atomic operation each.
template <u32 kSize>
__device__ __forceinline__ void label_claimed(const LabArguments& a, ItemsOf<kSize>& items, Tally& tally) {
  bool won[kSize];
#pragma unroll
  for (u32 item = 0; item < kSize; ++item) won[item] = items.has(item) && claims(a, items.ids[item]);
#pragma unroll
  for (u32 item = 0; item < kSize; ++item) {
    if (!items.has(item)) continue;
    if (won[item]) {
      if (a.parents) a.parents[items.ids[item]] = items.vertices[item];
      ++tally.labelled;
    } else {
      ++tally.claim_culled;
      items.drop(item);
    }
  }
}

// Label all vertices of the items.
template <u32 kSize>
__device__ __forceinline__ void label_all(const LabArguments& a, const ItemsOf<kSize>& items, Tally& tally) {
#pragma unroll
  for (u32 item = 0; item < kSize; ++item) {
    if (!items.has(item)) continue;
    set_label(a, items.ids[item], items.vertices[item]);
    ++tally.labelled;
  }
}

}  // namespace lab
}  // namespace dbfs
