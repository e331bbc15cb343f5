// The decision at a barrier: the next step, and the direction of the next level. One thread of each block runs this,
// from the same numbers on every block and rank.
//
// Beamer 2012, section 5: bottom-up pays when the frontier's edges, times alpha, exceed the unexplored edges; top-down
// pays again when the frontier falls under 1 / beta of the vertices. Four things differ here.
// - A sparse level (few edges) never becomes bottom-up. Near the end of a mesh few edges are left unexplored, and a
//   scan of all rows costs more than those edges.
// - After a dense level the edges are first estimated, as frontier vertices times the mean degree. Early frontiers hold
//   more than their share of hubs, so where the estimate calls for bottom-up the exact sum would as well. The pass that
//   computes the exact sum is saved.
// - Bottom-up requires that the frontier, growing as before, reaches the rest in this level. In a mesh most rows are
//   far from the frontier and would look through all of their edges in vain, level after level.
// - A row that a bottom-up level left open has looked at all of its edges there. So the edges that the level looked at
//   bound those of the next one, and top-down is cheaper for a frontier with fewer edges.
#pragma once
#include "search/cuda/kernels/resident/statistics.cuh"

namespace dbfs {

// The words of a rank's record at a barrier. They describe the frontier being made.
enum Word : u32 { kWordSent = 0, kWordVertices = 1, kWordEdges = 2, kWordTargets = 3 };
// After a bottom-up level kWordEdges holds the edges looked at. After Step::kHandOver the leader's words are: the
// length of the frontier, its level, and the length of the previous frontier.
enum LeaderWord : u32 { kWordLeaderVertices = 0, kWordLeaderLevel = 1, kWordLeaderExpanded = 2 };

// A word of the last barrier, summed over the ranks.
__device__ __forceinline__ u64 gang_sum(const Params& a, const Block& b, Word word) {
  u64 sum = 0;
  for (u32 rank = 0; rank < (kGang ? a.ranks : 1); ++rank) sum += b.values[rank * kFlagWords + word];
  return sum;
}

// The counters of a level's frontier.
__device__ __forceinline__ Slot* level_slot(const Params& a, u32 level) {
  return &a.control->slots[level % kLevelSlots];
}

// Steps from kExpandLight on make the frontier of the next level. The steps before prepare the frontier of this one.
__device__ __forceinline__ bool makes_next_frontier(Step step) { return step >= Step::kExpandLight; }

// The role of this rank in a step.
__device__ __forceinline__ Role role_of(Step step) {
  return step == Step::kExpandLeader ? kAloneRole : kUsualRole;
}

// Index of this rank's first word among the values of the last barrier.
__device__ __forceinline__ u32 own_values(const Params& a, Role role) {
  return role == Role::kPeer ? a.rank * kFlagWords : 0;
}

// The counters that a step adds to: those of the frontier that it makes.
__device__ __forceinline__ Slot* step_slot(const Params& a, const Run& run) {
  if (run.step == Step::kSettle || run.step == Step::kTakeOver) {
    return &a.control->slots[kLevelSlots + run.level % kSettleSlots];
  }
  return level_slot(a, makes_next_frontier(run.step) ? run.level + 1 : run.level);
}

// True for a step that puts vertices into the bins of other ranks.
__device__ __forceinline__ bool step_sends(Step step) {
  return step == Step::kExpandLight || step == Step::kExpandSparse;
}

__device__ __forceinline__ bool is_light(Step step) {
  return step == Step::kExpandLight || step == Step::kExpandLeader;
}

// The frontier's length divided by that of the previous frontier.
__device__ __forceinline__ float growth_of(const Run& run) {
  return (float)run.frontier.vertices / (float)max(run.expanded, (u64)1);
}

// Does bottom-up pay for a frontier of `edges` edges that grew by the factor `growth`?
__device__ __forceinline__ bool worth_bottom_up(const Params& a, const Run& run, float edges, float growth) {
  return edges * fminf(a.alpha, 1 + growth) > (float)run.unexplored && edges >= (float)run.looked_at;
}

// Will the frontier that a dense level makes be needed as a queue? Then the merge queues it at once. True if bottom-up
// would not pay even if the frontier grew twice as fast as before.
__device__ __forceinline__ bool queue_at_once(const Params& a, const Run& run) {
  if (a.direction != Direction::kAuto) return true;
  const float growth = 2 * growth_of(run);
  return !worth_bottom_up(a, run, (float)run.frontier.edges * growth, growth);
}

// The edges of so many vertices of mean degree.
__device__ __forceinline__ u64 estimated_edges(const Params& a, u64 vertices) {
  return (u64)((float)vertices * ((float)a.edges_total / (float)a.vertices_total));
}

// Can the level be bottom-up without knowing the frontier's edges?
__device__ __forceinline__ bool surely_bottom_up(const Params& a, const Run& run) {
  const Frontier& f = run.frontier;
  if (a.direction != Direction::kAuto) return a.direction == Direction::kBottomUp;
  const u64 edges = estimated_edges(a, f.vertices);
  if (run.mode == Mode::kBottomUp) {
    return (float)f.vertices * a.beta >= (float)a.vertices_total && edges + kSpareEdges * a.ranks >= run.looked_at;
  }
  return worth_bottom_up(a, run, (float)edges, growth_of(run));
}

// A light level needs small degrees (`a.light`) and room in the bins for every edge of the frontier. Targets and the
// last depth rule it out: both need the labels of the next frontier before it is expanded.
__device__ __forceinline__ bool can_be_light(const Params& a, const Run& run) {
  return a.light && run.frontier.vertices * a.max_degree <= a.sparse_edges && !a.target_total &&
         run.level + 1 < a.max_depth && a.direction != Direction::kBottomUp;
}

// Does the leader run this light level for all ranks? With few vertices its reads and writes over NVLink cost less than
// a barrier across GPUs. Leader levels begin with the first level and end when the frontier has grown.
__device__ __forceinline__ bool is_leader_level(const Params& a, const Run& run) {
  return kGang && (run.level == 0 || run.mode == Mode::kLeader) && run.frontier.vertices <= a.leader_vertices &&
         (run.level || a.source_count <= a.leader_vertices);
}

// The kind of a level whose frontier is queued, so that its edges are counted.
__device__ __forceinline__ Mode choose(const Params& a, const Run& run) {
  if (a.direction == Direction::kBottomUp) return Mode::kBottomUp;
  if (run.frontier.edges <= a.sparse_edges) return Mode::kSparse;
  const float edges = (float)run.frontier.edges;
  const bool pays = a.direction == Direction::kAuto && worth_bottom_up(a, run, edges, growth_of(run));
  return pays ? Mode::kBottomUp : Mode::kDense;
}

// The frontier of run.level is complete. Choose the first step of its level.
__device__ __forceinline__ Step open_level(const Params& a, Run& run) {
  Frontier& f = run.frontier;
  if (f.vertices == 0) return Step::kStop;
  if (can_be_light(a, run) && f.queued) {
    if (is_leader_level(a, run)) {
      run.mode = Mode::kLeader;
      if (a.rank != kLeader) return Step::kHandOver;
      if (!f.pending) run.small = a.source_count;
      return Step::kExpandLeader;
    }
    run.mode = Mode::kLight;
    return Step::kExpandLight;
  }
  if (f.pending) return Step::kSettle;
  if (run.level >= a.max_depth || (a.target_total && run.targets >= a.target_total)) return Step::kStop;
  if (!f.queued) {
    if (!surely_bottom_up(a, run)) return Step::kCompact;
    run.mode = Mode::kBottomUp;
    f.edges = estimated_edges(a, f.vertices);
  } else {
    run.mode = choose(a, run);
  }
  run.unexplored -= f.edges < run.unexplored ? f.edges : run.unexplored;
  if (run.mode == Mode::kBottomUp) return f.mapped ? Step::kScan : Step::kClearBits;
  return run.mode == Mode::kSparse ? Step::kExpandSparse : Step::kExpandDense;
}

// The decision after a light level, with few instructions.
__device__ __forceinline__ void conclude_light(const Params& a, Block& b) {
  Run& run = b.run;
  const Role role = role_of(run.step);
  run.small = (u32)b.values[own_values(a, role)];
  run.expanded = run.frontier.vertices;
  run.frontier.vertices = role == Role::kPeer ? gang_sum(a, b, kWordVertices) : b.values[kWordVertices];
  run.frontier.pending = true;
  run.queue ^= 1;
  note_level(b);
  ++run.level;
  if (role == Role::kLeader) {
    const bool goes_on = run.frontier.vertices && can_be_light(a, run) && is_leader_level(a, run);
    if (!goes_on) run.step = Step::kHandOver;
  } else {
    run.step = open_level(a, run);
  }
}

// The decision after Step::kHandOver: every rank, the leader included, reads the leader's words.
__device__ __forceinline__ void conclude_hand_over(const Params& a, Block& b) {
  Run& run = b.run;
  run.level = (u32)b.values[kLeader * kFlagWords + kWordLeaderLevel];
  run.small = (u32)b.values[kLeader * kFlagWords + kWordLeaderVertices];
  run.expanded = b.values[kLeader * kFlagWords + kWordLeaderExpanded];
  run.queue = run.level & 1;
  run.mode = Mode::kLight;
  if (a.rank != kLeader && blockIdx.x == 0) store_relaxed_sys(&a.host->leader_levels, run.level);
  run.step = run.small ? Step::kTakeOver : Step::kStop;
}

// End b.run.step, and set the next one.
__device__ __forceinline__ void conclude(const Params& a, Block& b) {
  Run& run = b.run;
  Frontier& f = run.frontier;
  const Step done = run.step;
  const Role role = role_of(done);
  if (makes_next_frontier(done)) b.level_frontier[run.level & 1] = role == kAloneRole ? f.vertices : run.own;
  if (step_sends(done) || role == Role::kLeader) {
    b.level_found[run.level & 1] = b.values[(role == Role::kLeader ? 0 : a.rank) * kFlagWords + kWordVertices];
  }
  if (is_light(done)) {
    conclude_light(a, b);
    return;
  }
  if (kGang && done == Step::kHandOver) {
    conclude_hand_over(a, b);
    return;
  }
  const u64 vertices = gang_sum(a, b, kWordVertices), edges = gang_sum(a, b, kWordEdges);
  bool level_done = false;
  switch (done) {
    case Step::kReset:
      run.step = Step::kStart;
      return;
    case Step::kClearBits:
    case Step::kSetBits:
      run.step = done == Step::kClearBits ? Step::kSetBits : Step::kShareBits;
      return;
    case Step::kShareBits:
      run.step = Step::kScan;
      return;
    case Step::kExpandDense:
      run.queues = queue_at_once(a, run);
      run.step = Step::kMerge;
      return;
    case Step::kExpandSparse:
      if (kGang && vertices) {
        run.step = Step::kContract;
        return;
      }
      level_done = true;
      break;
    case Step::kStart:
      if (blockIdx.x == 0) {
        const u64* own = &b.values[own_values(a, kUsualRole)];
        store_relaxed_sys(&a.host->source_rows, own[kWordVertices]);
        store_relaxed_sys(&a.host->source_edges, own[kWordEdges]);
      }
      run.targets = gang_sum(a, b, kWordTargets);
      break;
    case Step::kSettle:
    case Step::kTakeOver:
      run.queue ^= 1;
      break;
    case Step::kCompact:
      break;
    default:
      level_done = true;
  }
  if (level_done) run.expanded = f.vertices;
  if (done == Step::kScan) run.looked_at = edges;
  // Not before this point: the steps from queue to bitmap do not count the queue that was settled.
  run.small = (u32)b.values[own_values(a, kUsualRole)];
  run.own = b.values[own_values(a, kUsualRole) + kWordVertices];
  if (done == Step::kCompact) {
    f.edges = edges;
    f.queued = true;
  } else {
    const bool bitmap = done == Step::kMerge || done == Step::kScan;
    f = {vertices, done == Step::kScan ? 0 : edges, !bitmap || (done == Step::kMerge && run.queues), bitmap, false};
  }
  if (level_done) {
    if (done == Step::kScan) {
      run.bitmap ^= 1;
    } else {
      run.queue ^= 1;
    }
    run.targets += gang_sum(a, b, kWordTargets);
    note_level(b);
    ++run.level;
  }
  run.step = open_level(a, run);
}

}  // namespace dbfs
