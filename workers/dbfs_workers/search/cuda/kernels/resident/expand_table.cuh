// Light levels of a rank alone over a table of neighbours, many levels in a row.
//
// Each row of the table has the neighbours of a vertex and ends with kNoVertex (the ELLPACK format: Bell and Garland
// 2009). A level is one dependent trip to memory and a barrier: while a claim is under way, the row of the claimed vertex
// is read. A block that wins the claim keeps the vertex with its row in shared memory, and expands it in the next level.
// A block with too many vertices gives some to the queue, from which all blocks take; now and then all give all, so that
// no block has much more than another. The counts of a level travel in the barrier's word. Of few vertices the first
// warps of a block run the levels alone, since its own barriers take time too.
//
// A level takes 3,400 cycles, and an instruction on its way 5 to 10 (docs/decisions/deep-graphs.md). So a block does all
// that it can while it waits at the barrier, or for the answers to its claims: each thread takes its edge of the next
// level, kept vertices are labelled, and rows are fetched.
//
// In one beat a thread inspects one edge. Reads 4 bytes << log and a bit an edge; of the queue 4 bytes (8 with parents)
// and a row a vertex.
#pragma once
#include "search/cuda/kernels/resident/barrier.cuh"

namespace dbfs {

// A level over the table. Each thread moves it on by itself, since all of them know what the barrier's word said.
struct TableLevel {
  u32 level, queue, small;  // as of Run
  u32 vertices;             // of the frontier
  bool pending;             // as of Frontier, of the queue: kept vertices are labelled
  u32 kept;                 // as of Block
  u32 queued;               // vertices that the block has queued in this level
};

// An edge that a thread inspects in a beat.
struct TableEdge {
  u32 from, id;  // a vertex and a neighbour; kNoVertex where there is none
  u32 found;     // the word of the bitmap that a claim of the neighbour found
  uint4 row[2];  // of the neighbour; the second half of rows of eight
};

// Threads of a block that run a level of so many vertices.
__device__ __forceinline__ u32 threads_for(u32 vertices) {
  return vertices <= kFewEach * gridDim.x ? kFewThreads : kThreads;
}

// The rows of the vertices that a block keeps for a level.
__device__ __forceinline__ u32* kept_rows(Block& b, u32 level) { return b.keep_edges + level % kHalves * kThreads; }

// This thread's edge in a beat, of the vertices that the block kept.
__device__ __forceinline__ TableEdge kept_edge(const Params& a, Block& b, const TableLevel& at, u32 place) {
  if (place >= at.kept) return {kNoVertex, kNoVertex, kAll};
  const u32 lane = threadIdx.x & ((1u << a.table_log) - 1);
  return {b.keep_ids[kept_place(at.level) + place], kept_rows(b, at.level)[(place << a.table_log) + lane], kAll};
}

// Claim the neighbour. The answer is a trip to L2 away, and nothing here waits for it.
__device__ __forceinline__ void claim_neighbour(const Params& a, TableEdge& edge) {
  if (edge.id != kNoVertex) edge.found = atomicOr(&a.peers[0].visited[edge.id >> 5], bit_of(edge.id));
}

// Read the neighbour's row.
__device__ __forceinline__ void read_row(const Params& a, TableEdge& edge) {
  const uint4* const from = (const uint4*)&a.table[(u64)edge.id << a.table_log];
  edge.row[0] = __ldg(from);
  if (a.table_log == 3) edge.row[1] = __ldg(from + 1);
}

// With many vertices the reads of rows ahead cost more than the trips that they spare.
__device__ __forceinline__ bool reads_ahead(const TableLevel& at, const TableEdge& edge) {
  return at.vertices <= kEager && edge.id != kNoVertex;
}

// Fetch the rows of the kept vertices' neighbours: all warps but the first, while the first waits at the barrier.
__device__ __forceinline__ void fetch_rows(const Params& a, Block& b, const TableLevel& at, u32 threads) {
  const u32* rows = kept_rows(b, at.level);
  for (u32 i = threadIdx.x - kLanes; i < at.kept << a.table_log; i += threads - kLanes) {
    if (rows[i] != kNoVertex) prefetch(&a.table[(u64)rows[i] << a.table_log]);
  }
}

// Label a vertex that this block took.
__device__ __forceinline__ void settle_own(const Params& a, u32 id, u32 distance, u32 parent) {
  set_bit(a.known, id);
  label(a, id, distance, parent);
}

// Label the kept vertices, as `fetch_rows`.
__device__ __forceinline__ void settle_kept(const Params& a, const Block& b, const TableLevel& at, u32 threads) {
  for (u32 i = threadIdx.x - kLanes; i < at.kept; i += threads - kLanes) {
    const u32 place = kept_place(at.level) + i;
    settle_own(a, b.keep_ids[place], at.level, kPredecessors ? b.keep_parents[place] : kNoVertex);
  }
}

// The block writes vertices that it staged, from the `stay`-th on, to the next queue. Its first `threads` call it.
__device__ __forceinline__ void give_away(const Params& a, Block& b, Slot* slot, TableLevel& at, u32 threads, u32 stay,
                                          u32 count) {
  if (threadIdx.x == 0) b.base[0] = atomicAdd(&slot->lines[kSmall].value, (u64)(count - stay));
  at.queued += count - stay;
  sync_first(threads);
  const u32 queue = at.queue ^ 1, next = kept_place(at.level + 1), room = kThreads >> a.table_log;
  for (u32 i = stay + threadIdx.x; i < count; i += threads) {
    const bool kept = i < room;
    const u64 to = b.base[0] + i - stay;
    a.queues[queue][to] = kept ? b.keep_ids[next + i] : b.stage.ids[i - room];
    if (kPredecessors) a.queue_parents[queue][to] = kept ? b.keep_parents[next + i] : b.stage.parents[i - room];
  }
  sync_first(threads);
}

// Expand the vertices that the block kept, and its share of the queue. Its first `threads` call it. In the first beat
// their edges of kept vertices are claimed already. Discoveries are counted in `staged`; of these the first `room` are
// kept, and the others staged.
__device__ __forceinline__ void expand_table(const Params& a, Block& b, Slot* slot, TableLevel& at, u32 threads,
                                             TableEdge edge, u32& staged) {
  const u32 log = a.table_log, room = kThreads >> log;
  const u32 lane = threadIdx.x & ((1u << log) - 1), next = kept_place(at.level + 1);
  uint4* const next_rows = (uint4*)kept_rows(b, at.level + 1);
  u32 vertices = at.kept, beats = 0;
  if (blockIdx.x < at.small) vertices += (at.small - blockIdx.x - 1) / gridDim.x + 1;
  for (u32 first = 0; first < vertices; first += threads >> log) {
    if (__builtin_expect(beats == kStage / kThreads, 0)) {
      sync_first(threads);
      const u32 count = staged;
      if (count > room) {
        give_away(a, b, slot, at, threads, room, count);
        if (threadIdx.x == 0) staged = room;
      }
      sync_first(threads);
      beats = 0;
    }
    ++beats;
    const u32 place = first + (threadIdx.x >> log);
    if (first || place >= at.kept) {
      edge = kept_edge(a, b, at, place);
      if (place >= at.kept && place < vertices) {
        const u32 item = blockIdx.x + gridDim.x * (place - at.kept);
        edge.from = a.queues[at.queue][item];
        edge.id = __ldg(&a.table[((u64)edge.from << log) + lane]);
        // Claims are the limit of large levels.
        if (at.vertices > kEager && edge.id != kNoVertex && has_bit(a.peers[0].visited, edge.id)) edge.id = kNoVertex;
        if (at.pending && lane == 0) {
          settle_own(a, edge.from, at.level, kPredecessors ? a.queue_parents[at.queue][item] : kNoVertex);
        }
      }
      claim_neighbour(a, edge);
      if (reads_ahead(at, edge)) read_row(a, edge);
    }
    const u32 id = edge.id;
    const bool won = !(edge.found & bit_of(id));
    const u32 winners = __ballot_sync(kAll, won);
    u32 to = 0;
    if (winners && lane_id() == 0) to = atomicAdd(&staged, (u32)__popc(winners));
    to = __shfl_sync(kAll, to, 0) + __popc(winners & lanes_below());
    if (won && to < room) {
      b.keep_ids[next + to] = id;
      if (kPredecessors) b.keep_parents[next + to] = edge.from;
      if (!reads_ahead(at, edge)) read_row(a, edge);
      next_rows[(to << log) / 4] = edge.row[0];
      if (log == 3) next_rows[2 * to + 1] = edge.row[1];
    } else if (won) {
      if (reads_ahead(at, edge)) prefetch(&a.table[(u64)id << log]);
      b.stage.ids[to - room] = id;
      if (kPredecessors) b.stage.parents[to - room] = edge.from;
    }
  }
}

// Run levels until one can't be light, or wants more or fewer threads, and choose the step that follows. The first
// `threads` of the block call it.
__device__ __forceinline__ void run_levels(const Params& a, Block& b, u32 threads) {
  const u32 room = kThreads >> a.table_log, few = kFewEach * gridDim.x;
  Run& run = b.run;
  // More vertices than `least` and at most `most` are expanded here.
  const u32 light = (u32)min(a.sparse_edges / a.max_degree, (u64)kAll);
  const u32 least = threads == kThreads ? few : 0, most = threads == kThreads ? light : min(light, few);
  TableLevel at = {run.level, run.queue, run.small, (u32)run.frontier.vertices, run.frontier.pending, b.kept, 0};
  TableEdge edge = kept_edge(a, b, at, threadIdx.x >> a.table_log);
  claim_neighbour(a, edge);
  if (reads_ahead(at, edge)) read_row(a, edge);
  bool goes_on;
  do {
    // While the claims are under way.
    Slot* const slot = level_slot(a, at.level + 1);
    u32& staged = b.staged_for[at.level & 1];
    Turn turn = {};
    if (threadIdx.x == 0) {
      turn = next_turn(a, b);
      b.noted = b.ended;
    }
    const u32 every = at.vertices > kDealtFew * gridDim.x ? kDealMany : kDealFew;
    const bool deals = at.level % every == every - 1 && at.vertices > gridDim.x;
    expand_table(a, b, slot, at, threads, edge, staged);
    sync_first(threads);
    const u32 count = staged;
    // A block with too many keeps half of its room, so that few levels have a queue to read.
    at.kept = deals ? 0 : count <= room ? count : room / 2;
    if (__builtin_expect(at.kept < count, 0)) give_away(a, b, slot, at, threads, at.kept, count);
    // Other blocks read only the queue at once. Claims have been answered, and labels are read by steps that follow a
    // barrier with a release.
    if (threadIdx.x == 0) arrive(turn, at.queued, at.kept, at.queued);
    at.queued = 0;
    at.queue ^= 1;
    ++at.level;
    at.pending = true;
    // While the block waits, so that nothing but the claim is left to do when the barrier opens.
    edge = kept_edge(a, b, at, threadIdx.x >> a.table_log);
    u64 sums = 0;
    if (threadIdx.x == 0) {
      b.staged_for[at.level & 1] = 0;
      const bool alive = await_turn(a, b, turn, sums);
      b.goes_on = alive && found_of(sums) - least - 1 < most - least && at.level + 1 < a.max_depth;
      b.sums = sums;
      if (!alive) b.alive = 0;
    } else if (threadIdx.x >= kLanes) {
      if (at.vertices <= kEager) fetch_rows(a, b, at, threads);
      settle_kept(a, b, at, threads);
      report_level(a, b, threads / kLanes - 1);
    }
    sync_first(threads);
    goes_on = b.goes_on;
    if (goes_on) claim_neighbour(a, edge);
    const u32 expanded = at.vertices;
    at.small = queued_of(b.sums);
    at.vertices = found_of(b.sums);
    if (goes_on && reads_ahead(at, edge)) read_row(a, edge);
    if (threadIdx.x == 0) {
      end_turn(b, turn, sums);
      if (blockIdx.x == 0) {
        b.level_frontier[run.level & 1] = expanded;
        b.level_found[run.level & 1] = at.vertices;
        note_level(b);
      }
      run.expanded = expanded;
      run.level = at.level;
    }
  } while (goes_on);
  if (threadIdx.x == 0) {
    b.staged_for[at.level + 1 & 1] = 0;
    b.kept = at.kept;
    run.frontier.vertices = at.vertices;
    run.frontier.pending = true;
    run.small = at.small;
    run.queue = at.queue;
    if (b.alive) run.step = open_level(a, run);
  }
}

// Run light levels over the table. All threads call it. False: leave the kernel.
__device__ __forceinline__ bool table_levels(const Params& a, Block& b) {
  const u32 threads = threads_for((u32)b.run.frontier.vertices);
  // Until all threads have read the step and the frontier: those that run no level would find what comes after it.
  __syncthreads();
  if (threadIdx.x < threads) run_levels(a, b, threads);
  __syncthreads();
  return b.alive;
}

}  // namespace dbfs
