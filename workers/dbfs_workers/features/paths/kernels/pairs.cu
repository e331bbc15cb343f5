// Distances of many pairs of rows on the only GPU of a graph, each searched from both ends: see
// features/paths/kernels/search.py.
//
// A block searches for one pair at a time and takes the next one from a counter, so that a long search holds up no
// other pair. It has two bits for each row, one a side, of sixteen rows in a word: one load answers for both sides. And
// it has a queue of rows for each side, by distance. The queue is a ring, whose new rows overwrite those behind the
// frontier. The queues tell which bits to clear after a pair; behind a ring that went round, all are cleared. A pair
// whose frontiers do not fit is given back: the host then runs few blocks, whose queues have room for all rows.
//
// The threads of a block share the edges of kThreads rows at a time. An edge costs a column and a word of bits, a new
// row an atomic and 16 bytes of offsets twice: its degree counts for the choice of the side.
#include "search/cuda/kernels/common/memory.cuh"

namespace dbfs {

// See on_gpu.py. Of a directed graph without in-edges the far side has none, and stays at the target.
struct Pairs {
  const i64* offsets[2];  // by side
  const u32* columns[2];
  const u32* pairs;  // rows, the two of a pair beside each other
  i32* found;        // the distances; kNoPath, or kNoRoom
  u32* bits;         // of all blocks, zeros
  u32* queues;       // by block and side
  u64* control;
  const u64* abort;  // in the host's memory
  u64 limit_ns;
  u32 rows, count;
  u32 room;  // rows of a queue: a power of two, or all rows
  u32 mask;  // gives the place in the ring
};
static_assert(sizeof(Pairs) == 11 * 8 + 4 * 4, "the fields of on_gpu.py");

// Words of `control`: pairs that are taken; why the launch was stopped.
enum { kNext = 0, kOutcome = 1 };
// Ends of a search. Of several in one round any may stay: each is true.
enum { kAborted = 1, kLate, kMet, kFull };
constexpr i32 kNoPath = -1, kNoRoom = -2;
constexpr u32 kUnroll = 2;       // edges in flight per thread
constexpr i64 kPiece = 4096;     // most edges of a row in a round, so that looks at the clock are milliseconds apart
constexpr u64 kLookNs = 200000;  // the host's flag, which takes 1 us, is looked at this often
constexpr u64 kNever = ~(u64)0;  // edges of a side that can't go on

// A side's frontier, which is entries begin to end of its queue; entries count on while the ring goes round.
struct Front {
  u32 begin, end;
  u32 queued;  // with what the level under way has queued
  i32 depth;   // distance from the side's own end
  u64 edges;   // the sum of the frontier's degrees
};

struct Shared {
  Front fronts[2];
  u64 pair;
  u64 started, looked;   // times of the first thread
  u64 edges;             // of the next frontier
  u32 firsts[kThreads];  // by row of a round: its first edge in the list of the round's edges
  i64 places[kThreads];  // what to add to a place in that list for the place of the edge
  u32 sums[kWarps];
  u32 end;  // why the search ends; 0 while it goes on
};

// What a block has.
struct Memory {
  u32* bits;
  u32* queue;
  __device__ __forceinline__ u32& entry(const Pairs& a, u32 side, u32 at) const {
    return queue[(u64)side * a.room + (at & a.mask)];
  }
};

// What is indexed by a variable would be copied into local memory.
template <class T>
__device__ __forceinline__ const T* of_side(const T* const (&both)[2], u32 side) {
  return side ? both[1] : both[0];
}

struct Range {
  i64 begin, end;
};

__device__ __forceinline__ Range edges_of(const Pairs& a, u32 side, u32 row) {
  const i64* const offsets = of_side(a.offsets, side);
  return {__ldg(&offsets[row]), __ldg(&offsets[row + 1])};
}

__device__ __forceinline__ u64 degree(const Pairs& a, u32 side, u32 row) {
  const Range edges = edges_of(a, side, row);
  return edges.end - edges.begin;
}

// The first thread looks at the clock, and now and then at the host's flag.
__device__ __forceinline__ void look(const Pairs& a, Shared& s) {
  if (threadIdx.x) return;
  const u64 now = now_ns();
  u32 stop = now - s.started > a.limit_ns ? kLate : 0;
  if (now - s.looked >= kLookNs) {
    s.looked = now;
    if (load_relaxed_sys(a.abort)) stop = kAborted;
  }
  if (stop) a.control[kOutcome] = s.end = stop;
}

// List the edges of a round, `count` of each thread's row from a place on; return their number.
__device__ __forceinline__ u32 list_edges(Shared& s, i64 begin, u32 count) {
  u32 total;
  const u32 before = scan_exclusive(count, total);
  if (lane_id() == 0) s.sums[warp_in_block()] = total;
  __syncthreads();
  const u32 warps = scan_exclusive(lane_id() < kWarps ? s.sums[lane_id()] : 0, total);
  const u32 first = __shfl_sync(kAll, warps, warp_in_block()) + before;
  s.firsts[threadIdx.x] = first;
  s.places[threadIdx.x] = begin - first;
  __syncthreads();
  return total;
}

// Queue a row for each lane that has one. All lanes call it.
__device__ __forceinline__ void put(const Pairs& a, Shared& s, const Memory& m, u32 side, u32 row, bool has) {
  const u32 which = __ballot_sync(kAll, has);
  if (!which) return;
  u32 at = 0;
  if (lane_id() == 0) at = atomicAdd(&s.fronts[side].queued, (u32)__popc(which));
  at = __shfl_sync(kAll, at, 0) + __popc(which & lanes_below());
  if (!has) return;
  if (at - s.fronts[side].begin < a.room) {
    m.entry(a, side, at) = row;
  } else {
    atomicExch(&s.end, (u32)kFull);
  }
}

// Walk over the edges of a round until a warp knows why the search ends.
__device__ __forceinline__ void walk(const Pairs& a, Shared& s, const Memory& m, u32 side, u32 total) {
  const u32 own = 1u << side, other = 2u >> side;
  const u32* const columns = of_side(a.columns, side);
  for (u32 base = 0; base < total; base += kThreads * kUnroll) {
    u32 row[kUnroll], seen[kUnroll];
    bool met = false;
#pragma unroll
    for (u32 i = 0; i < kUnroll; ++i) {
      const u32 edge = base + i * kThreads + threadIdx.x;
      u32 at = 0;
#pragma unroll
      for (u32 step = kThreads / 2; step; step >>= 1) at += s.firsts[at + step] <= edge ? step : 0;
      row[i] = edge < total ? __ldg(&columns[s.places[at] + edge]) : kNoVertex;
    }
#pragma unroll
    for (u32 i = 0; i < kUnroll; ++i) {
      seen[i] = row[i] == kNoVertex ? own : load_shared_by_gang(&m.bits[row[i] >> 4]) >> row[i] % 16 * 2 & 3;
    }
#pragma unroll
    for (u32 i = 0; i < kUnroll; ++i) {
      bool fresh = !seen[i];
      if (fresh) {
        const u32 shift = row[i] % 16 * 2;
        fresh = !(atomicOr(&m.bits[row[i] >> 4], own << shift) >> shift & own);
      }
      met |= (seen[i] & other) != 0;
      put(a, s, m, side, row[i], fresh);
    }
    if (met) atomicExch(&s.end, (u32)kMet);
    if (__any_sync(kAll, lane_id() == 0 && atomicOr(&s.end, 0u))) return;
  }
}

// Run a level of a side; true if the search ends in it. All threads call this and what follows, and get one answer.
__device__ bool expand(const Pairs& a, Shared& s, const Memory& m, u32 side) {
  const u32 end = s.fronts[side].end;
  for (u32 first = s.fronts[side].begin; first < end; first += kThreads) {
    const u32 at = first + threadIdx.x;
    Range edges = {0, 0};
    if (at < end) edges = edges_of(a, side, m.entry(a, side, at));
    while (__syncthreads_or(edges.begin < edges.end)) {
      const i64 count = edges.end - edges.begin < kPiece ? edges.end - edges.begin : kPiece;
      look(a, s);
      walk(a, s, m, side, list_edges(s, edges.begin, (u32)count));
      edges.begin += count;
      __syncthreads();
      // Another barrier is before the next look, which may write it.
      if (s.end) return true;
    }
  }
  return false;
}

// Make what a level has queued the frontier of its side.
__device__ void settle(const Pairs& a, Shared& s, const Memory& m, u32 side) {
  Front& front = s.fronts[side];
  u64 edges = 0;
  for (u32 at = front.end + threadIdx.x; at < front.queued; at += kThreads) {
    edges += degree(a, side, m.entry(a, side, at));
  }
  for (u32 step = kLanes / 2; step; step >>= 1) edges += __shfl_xor_sync(kAll, edges, step);
  if (lane_id() == 0 && edges) atomicAdd(&s.edges, edges);
  __syncthreads();
  if (threadIdx.x == 0) {
    front = {front.end, front.queued, front.queued, front.depth + 1, s.edges};
    s.edges = 0;
  }
  __syncthreads();
}

// Return the distance of a pair, or kNoPath or kNoRoom.
__device__ i32 search(const Pairs& a, Shared& s, const Memory& m, u64 pair) {
  if (threadIdx.x < 2) {
    const u32 side = threadIdx.x, row = a.pairs[2 * pair + side];
    m.entry(a, side, 0) = row;
    set_bits(&m.bits[row >> 4], 1u << side << row % 16 * 2);
    s.fronts[side] = {0, 1, 1, 0, of_side(a.offsets, side) ? degree(a, side, row) : kNever};
  }
  __syncthreads();
  if (a.pairs[2 * pair] == a.pairs[2 * pair + 1]) return 0;
  const Front &near = s.fronts[0], &far = s.fronts[1];
  while (near.begin < near.end && far.begin < far.end) {
    const u32 side = far.edges < near.edges;
    if (expand(a, s, m, side)) return s.end == kMet ? near.depth + far.depth + 1 : kNoRoom;
    settle(a, s, m, side);
  }
  return kNoPath;
}

// Clear the bits of a pair.
__device__ void clear(const Pairs& a, const Shared& s, const Memory& m) {
  const bool whole = s.fronts[0].queued > a.room || s.fronts[1].queued > a.room;
  for (u32 at = threadIdx.x; whole && at < a.rows / 16; at += kThreads) m.bits[at] = 0;
  for (u32 side = 0; side < 2; ++side) {
    for (u32 at = threadIdx.x; !whole && at < s.fronts[side].queued; at += kThreads) {
      m.bits[m.entry(a, side, at) >> 4] = 0;
    }
  }
}

}  // namespace dbfs

using namespace dbfs;

extern "C" __global__ void __launch_bounds__(kThreads, kBlocksPerSm) dbfs_pair_distances(const Pairs a) {
  __shared__ Shared s;
  const Memory m = {a.bits + (u64)blockIdx.x * (a.rows / 16), a.queues + (u64)blockIdx.x * 2 * a.room};
  if (threadIdx.x == 0) {
    s.started = now_ns();
    s.looked = s.started - kLookNs;
    s.edges = 0;
  }
  while (true) {
    if (threadIdx.x == 0) {
      s.pair = atomicAdd(&a.control[kNext], (u64)1);
      s.end = 0;
      look(a, s);
    }
    __syncthreads();
    const u64 pair = s.pair;
    if (pair >= a.count || s.end) return;
    const i32 distance = search(a, s, m, pair);
    if (threadIdx.x == 0) a.found[pair] = distance;
    clear(a, s, m);
    __syncthreads();
  }
}
