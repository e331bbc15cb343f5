// Rows on linked pages, as in faimGraph (Tödling 2019, section 7): made, and changed in place by updates.
//
// A page has the number of the next page behind its neighbours. A row has its first page and the number of its neighbours,
// and all its pages but the last are full. Free pages lie on a stack. A warp changes a row, so rows need no locks. An
// insertion only takes pages and a deletion only gives pages back, so that one atomic operation a row moves the top of the
// stack. The edges of an update ascend, and those of a row are a group.
#include "features/lab/kernels/problem.cuh"

using namespace dbfs;
using namespace dbfs::lab;

namespace {

constexpr u32 kNone = kAll;  // no page; and the place of a deleted neighbour, since no row has this number

constexpr u32 kAhead = 4;  // pages that a warp reads at once

// Call `work(which)` for each of `count` rows or groups, a warp each.
template <class Work>
__device__ __forceinline__ void for_each_by_warp(u64 count, Work work) {
  for (u64 which = u64(blockIdx.x) * kWarps + warp(); which < count; which += u64(gridDim.x) * kWarps) work(which);
}

// A row's edges in the update, and the row's list.
struct Group {
  const u64* keys;
  u8* left_out;  // a byte an edge: the edge is there already
  u64* there;    // how often the row has each edge, counted at the first of equal ones
  u32 size, row;
  u64 list;

  // The place of the first edge to a neighbour; `size` if there is none.
  __device__ __forceinline__ u32 find(u32 neighbour) const {
    const u64 key = u64(row) << 32 | neighbour;
    u32 first = 0, end = size;
    while (first < end) {
      const u32 middle = first + (end - first) / 2;
      if (keys[middle] < key) {
        first = middle + 1;
      } else {
        end = middle;
      }
    }
    return first < size && keys[first] == key ? first : size;
  }
};

__device__ __forceinline__ Group group_of(const LabArguments& a, u64 which) {
  const u64* keys = a.keys + a.in_ids[which];
  const u32 row = u32(keys[0] >> 32);
  const u32 first = a.in_ids[which];
  return Group{keys, a.flags + first, a.tile_sums + first, a.in_ids[which + 1] - first, row, a.lists[row]};
}

// Call `look(words, word, has)` for each page of a list: its words, that of the lane, and whether that is a neighbour.
// Return the last page.
template <class Look>
__device__ __forceinline__ u32 for_each_page(const LabArguments& a, u64 list, Look look) {
  u32 page = u32(list >> 32), last = kNone;
  const u32 size = u32(list);
  for (u32 done = 0; done < size;) {
    const PagesOf<kAhead> pages = read_pages<kAhead>(a, page, pages_of(size - done));
#pragma unroll
    for (u32 at = 0; at < kAhead; ++at) {
      if (done >= size) break;
      last = pages.numbers[at];
      look(page_at(a, last), pages.words[at], lane() < kPageColumns && lane() < size - done);
      done += kPageColumns;
    }
    page = __shfl_sync(kAll, pages.words[kAhead - 1], kPageColumns);
  }
  return last;
}

// Append to a list the `count` neighbours `neighbour(i)` of the i below `size` that `takes(i)`.
template <class Takes, class Neighbour>
__device__ __forceinline__ void append(const LabArguments& a, u32 row, u64 list, u32 tail, u32 count, u32 size,
                                       Takes takes, Neighbour neighbour) {
  const u32 degree = u32(list), old = pages_of(degree), fresh = pages_of(degree + count) - old;
  const u32 top = __shfl_sync(kAll, fresh && lane() == 0 ? atomicAdd(a.free_pages, 0u - fresh) : 0, 0);
  const u32* taken = a.free_pages + top;  // downwards
  for (u32 at = lane(); at < fresh; at += kLanes) {
    page_at(a, *(taken - at))[kPageColumns] = at + 1 < fresh ? *(taken - at - 1) : kNone;
  }
  if (lane() == 0) {
    if (old && fresh) page_at(a, tail)[kPageColumns] = *taken;
    a.lists[row] = (old ? list >> 32 : fresh ? *taken : kNone) << 32 | (degree + count);
  }
  u32 place = degree;
  for (u32 first = 0; first < size; first += kLanes) {
    const u32 at = first + lane();
    const bool mine = at < size && takes(at);
    const u32 all = __ballot_sync(kAll, mine);
    if (mine) {
      const u32 own = place + __popc(all & ((1u << lane()) - 1)), page = own / kPageColumns;
      page_at(a, page < old ? tail : *(taken - (page - old)))[own % kPageColumns] = neighbour(at);
    }
    place += __popc(all);
  }
}

// Put the neighbours behind the first `kept` places into the gaps before, and give back the pages behind.
__device__ __forceinline__ void close_gaps(const LabArguments& a, u32 row, u64 list, u32 kept) {
  const u32 degree = u32(list), head = u32(list >> 32), full = kept / kPageColumns;
  List rest{0, degree, 0, row, head};
  u32 last = skip_pages(a, rest, full);
  u32 from = rest.page, behind = from;
  if (kept % kPageColumns) {
    last = from;
    behind = page_at(a, from)[kPageColumns];
  }
  u32 begin = full * kPageColumns, word, moving;
  const auto read = [&] {
    word = page_at(a, from)[lane()];
    const u32 place = begin + lane();
    moving = __ballot_sync(kAll, lane() < kPageColumns && place >= kept && place < degree && word != kNone);
  };
  read();
  for_each_page(a, u64(head) << 32 | kept, [&](u32* words, u32 own, bool has) {
    for (u32 gaps = __ballot_sync(kAll, has && own == kNone); gaps; gaps &= gaps - 1) {
      while (!moving) {
        from = __shfl_sync(kAll, word, kPageColumns);
        begin += kPageColumns;
        read();
      }
      const u32 neighbour = __shfl_sync(kAll, word, __ffs(moving) - 1);
      if (lane() == u32(__ffs(gaps) - 1)) words[lane()] = neighbour;
      moving &= moving - 1;
    }
  });
  const u32 freed = pages_of(degree) - pages_of(kept);
  const u32 top = __shfl_sync(kAll, freed && lane() == 0 ? atomicAdd(a.free_pages, freed) : 0, 0);
  for (u32 page = 0; page < freed; ++page) {
    if (lane() == 0) a.free_pages[1 + top + page] = behind;
    behind = page_at(a, behind)[kPageColumns];
  }
  if (lane()) return;
  if (kept) page_at(a, last)[kPageColumns] = kNone;
  a.lists[row] = u64(kept ? head : kNone) << 32 | kept;
}

// Lane 0 of each warp counts for its warp.
__device__ __forceinline__ void count(const LabArguments& a, u64 pages, u64 edges) {
  if (lane() || !edges) return;
  atomicAdd(a.counters + kQueued, pages);
  atomicAdd(a.counters + kLabelled, edges);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_fill_pages(const LabArguments a) {
  for_each_by_warp(a.rows, [&](u64 row) {
    const u32* columns = a.columns + a.offsets[row];
    const u32 size = a.offsets[row + 1] - a.offsets[row];
    append(a, row, a.lists[row], kNone, size, size, [](u32) { return true; }, [&](u32 at) { return columns[at]; });
  });
}

// Write the edges of all rows as keys, those of a row behind one another.
extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_read_pages(const LabArguments a) {
  for_each_by_warp(a.rows, [&](u64 row) {
    u64* keys = a.tile_sums + a.offsets[row] + lane();
    for_each_page(a, a.lists[row], [&](u32*, u32 word, bool has) {
      if (has) *keys = row << 32 | word;
      keys += kPageColumns;
    });
  });
}

// Find which edges are new, and count the pages that they need. A group has its row's last page in out_ids, and the number
// of its new edges in out_parents.
extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_plan_update(const LabArguments a) {
  u64 pages = 0, edges = 0;
  for_each_by_warp(a.in_size, [&](u64 which) {
    const Group group = group_of(a, which);
    for (u32 at = lane(); at < group.size; at += kLanes) {
      group.left_out[at] = at && group.keys[at] == group.keys[at - 1];
    }
    __syncwarp();
    const u32 tail = for_each_page(a, group.list, [&](u32*, u32 word, bool has) {
      const u32 at = has ? group.find(word) : group.size;
      if (at >= group.size) return;
      group.left_out[at] = 1;
      atomicAdd(&group.there[at], u64(1));
    });
    __syncwarp();
    u32 added = 0;
    for (u32 first = 0; first < group.size; first += kLanes) {
      const u32 at = first + lane();
      added += __popc(__ballot_sync(kAll, at < group.size && !group.left_out[at]));
    }
    if (lane() == 0) {
      a.out_ids[which] = tail;
      a.out_parents[which] = added;
    }
    const u32 degree = u32(group.list);
    pages += pages_of(degree + added) - pages_of(degree);
    edges += added;
  });
  count(a, pages, edges);
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_insert(const LabArguments a) {
  for_each_by_warp(a.in_size, [&](u64 which) {
    const Group group = group_of(a, which);
    append(
        a, group.row, group.list, a.out_ids[which], a.out_parents[which], group.size,
        [&](u32 at) { return !group.left_out[at]; }, [&](u32 at) { return u32(group.keys[at]); });
  });
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_delete(const LabArguments a) {
  u64 pages = 0, edges = 0;
  for_each_by_warp(a.in_size, [&](u64 which) {
    const Group group = group_of(a, which);
    u32 gaps = 0;
    for_each_page(a, group.list, [&](u32* words, u32 word, bool has) {
      const bool deleted = has && group.find(word) < group.size;
      if (deleted) words[lane()] = kNone;
      gaps += __popc(__ballot_sync(kAll, deleted));
    });
    if (!gaps) return;
    const u32 degree = u32(group.list), kept = degree - gaps;
    close_gaps(a, group.row, group.list, kept);
    pages += pages_of(degree) - pages_of(kept);
    edges += gaps;
  });
  count(a, pages, edges);
}
