// Light levels of a rank alone over a table of neighbours, many levels in a row.
//
// Each row of the table has the neighbours of a vertex and ends with kNoVertex (the ELLPACK format: Bell and Garland
// 2009). A level is one dependent trip to memory and a barrier: while a claim is under way, the row of the claimed vertex
// is read. A block that wins the claim keeps the vertex with its row in shared memory, and expands it in the next level.
// A block with too many vertices gives some to the queue, from which all blocks take; now and then all give all, so that
// no block has much more than another. The counts of a level travel in the barrier's word, and each thread decides from
// them by itself. Of few vertices the first warps of a block run the levels alone, since its own barriers take time too.
//
// In one beat a thread inspects one edge. Reads 4 bytes << log and a bit an edge; of the queue 4 bytes (8 with parents)
// and a row a vertex.
#pragma once
#include "search/cuda/kernels/resident/barrier.cuh"

namespace dbfs {

// Threads of a block that run a level of so many vertices.
__device__ __forceinline__ u32 threads_for(u64 vertices) {
  return vertices <= kFewEach * gridDim.x ? kFewThreads : kThreads;
}

// Fetch the rows of four vertices.
__device__ __forceinline__ void fetch_rows(const Params& a, uint4 ids) {
  const u32 log = a.table_log;
  if (ids.x != kNoVertex) prefetch(&a.table[(u64)ids.x << log]);
  if (ids.y != kNoVertex) prefetch(&a.table[(u64)ids.y << log]);
  if (ids.z != kNoVertex) prefetch(&a.table[(u64)ids.z << log]);
  if (ids.w != kNoVertex) prefetch(&a.table[(u64)ids.w << log]);
}

// The block writes vertices that it staged, from the `stay`-th on, to the next queue. Its first `threads` call it.
__device__ __forceinline__ void give_away(const Params& a, Block& b, Slot* slot, u32 threads, u32 room, u32 stay,
                                          u32 count) {
  if (threadIdx.x == 0) {
    b.base[0] = atomicAdd(&slot->lines[kSmall].value, (u64)(count - stay));
    b.queued += count - stay;
  }
  sync_first(threads);
  const u32 queue = b.run.queue ^ 1, next = kept_place(b.run.level + 1);
  for (u32 i = stay + threadIdx.x; i < count; i += threads) {
    const bool kept = i < room;
    const u64 to = b.base[0] + i - stay;
    a.queues[queue][to] = kept ? b.keep_ids[next + i] : b.stage.ids[i - room];
    if (kPredecessors) a.queue_parents[queue][to] = kept ? b.keep_parents[next + i] : b.stage.parents[i - room];
  }
  sync_first(threads);
}

// Expand the vertices that the block kept, and its share of the queue. Its first `threads` call it. Discoveries are
// counted in `staged`; of these the first `room` are kept, and the others staged.
__device__ __forceinline__ void expand_table(const Params& a, Block& b, Slot* slot, u32 threads, u32 kept, u32& staged) {
  const u32 log = a.table_log, room = kThreads >> log;
  const Run& run = b.run;
  const u32 lane = threadIdx.x & (1u << log) - 1, here = kept_place(run.level), next = kept_place(run.level + 1);
  const u32* const rows = b.keep_edges + run.level % kHalves * kThreads;
  uint4* const next_rows = (uint4*)(b.keep_edges + (run.level + 1) % kHalves * kThreads);
  const u32* const queue = a.queues[run.queue];
  const u32 groups = threads >> log, small = run.small;
  // With many vertices the reads of rows ahead cost more than the trips that they spare.
  const bool eager = run.frontier.vertices <= kEager;
  u32 beats = 0;
  for (u32 first = 0; first < kept || blockIdx.x + gridDim.x * (first - kept) < small; first += groups) {
    if (__builtin_expect(beats == kStage / kThreads, 0)) {
      sync_first(threads);
      const u32 count = staged;
      if (count > room) {
        give_away(a, b, slot, threads, room, room, count);
        if (threadIdx.x == 0) staged = room;
      }
      sync_first(threads);
      beats = 0;
    }
    ++beats;
    const u32 place = first + (threadIdx.x >> log), item = blockIdx.x + gridDim.x * (place - kept);
    u32 from = kNoVertex, parent = kNoVertex, id = kNoVertex;
    if (place < kept) {
      from = b.keep_ids[here + place];
      if (kPredecessors) parent = b.keep_parents[here + place];
      id = rows[(place << log) + lane];
    } else if (item < small) {
      from = queue[item];
      if (kPredecessors && lane == 0) parent = a.queue_parents[run.queue][item];
      id = __ldg(&a.table[((u64)from << log) + lane]);
    }
    bool won = id != kNoVertex;
    uint4 row, rest;
    const auto read_row = [&] {
      const uint4* const at = (const uint4*)&a.table[(u64)id << log];
      row = __ldg(at);
      if (log == 3) rest = __ldg(at + 1);
    };
    if (won && eager) read_row();
    if (won) won = claim(a.peers[0].visited, id);
    if (run.frontier.pending && from != kNoVertex && lane == 0) {
      set_bit(a.known, from);
      label(a, from, run.level, parent);
    }
    const u32 winners = __ballot_sync(kAll, won);
    u32 to = 0;
    if (winners && lane_id() == 0) to = atomicAdd(&staged, (u32)__popc(winners));
    to = __shfl_sync(kAll, to, 0) + __popc(winners & lanes_below());
    if (won && to < room) {
      b.keep_ids[next + to] = id;
      if (kPredecessors) b.keep_parents[next + to] = from;
      if (!eager) read_row();
      next_rows[(to << log) / 4] = row;
      if (log == 3) next_rows[2 * to + 1] = rest;
      // The level after the next one reads these rows, while its claims are under way.
      if (eager) fetch_rows(a, row);
      if (eager && log == 3) fetch_rows(a, rest);
    } else if (won) {
      if (eager) prefetch(&a.table[(u64)id << log]);
      b.stage.ids[to - room] = id;
      if (kPredecessors) b.stage.parents[to - room] = from;
    }
  }
}

// Run levels until one can't be light, or wants more or fewer threads, and choose the step that follows. The first
// `threads` of the block call it.
__device__ __forceinline__ void run_levels(const Params& a, Block& b, u32 threads) {
  const u32 room = kThreads >> a.table_log;
  Run& run = b.run;
  const u64 most = a.sparse_edges / a.max_degree;
  u64 vertices = run.frontier.vertices;
  u32 kept = b.kept;
  do {
    Slot* const slot = level_slot(a, run.level + 1);
    u32& staged = b.staged_for[run.level & 1];
    // Before the block's barrier: behind it the first thread moves the run on, while others may come late.
    const u32 every = vertices > kDealtFew * gridDim.x ? kDealMany : kDealFew;
    const bool deals = run.level % every == every - 1 && vertices > gridDim.x;
    if (threadIdx.x == 0) b.noted = b.ended;
    expand_table(a, b, slot, threads, kept, staged);
    sync_first(threads);
    const u32 count = staged;
    // A block with too many keeps half of its room, so that few levels have a queue to read.
    kept = deals ? 0 : count <= room ? count : room / 2;
    if (__builtin_expect(kept < count, 0)) give_away(a, b, slot, threads, room, kept, count);
    if (threadIdx.x == 0) {
      b.kept = kept;
      b.staged_for[run.level + 1 & 1] = 0;
      u64 sums = 0;
      b.alive = pass_grid(a, b, sums);
      const u32 small = (u32)(sums >> 32), found = small + (u32)(sums >> 16 & 0xffff);
      if (blockIdx.x == 0) {
        b.level_frontier[run.level & 1] = vertices;
        b.level_found[run.level & 1] = found;
        note_level(b);
      }
      run.expanded = vertices;
      run.frontier.vertices = found;
      run.frontier.pending = true;
      run.small = small;
      run.queue ^= 1;
      ++run.level;
    } else if (threadIdx.x >= kLanes) {
      report_level(a, b, threads / kLanes - 1);
    }
    sync_first(threads);
    vertices = run.frontier.vertices;
  } while (b.alive && vertices - 1 < most && run.level + 1 < a.max_depth && threads == threads_for(vertices));
  if (threadIdx.x == 0) {
    b.staged_for[run.level + 1 & 1] = 0;
    if (b.alive) run.step = open_level(a, run);
  }
}

// Run light levels over the table. All threads call it. False: leave the kernel.
__device__ __forceinline__ bool table_levels(const Params& a, Block& b) {
  const u32 threads = threads_for(b.run.frontier.vertices);
  if (threadIdx.x < threads) run_levels(a, b, threads);
  __syncthreads();
  return b.alive;
}

}  // namespace dbfs
