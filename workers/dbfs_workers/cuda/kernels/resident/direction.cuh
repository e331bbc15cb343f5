// What comes after a barrier: the next step, and which way the next level goes. One thread of each block runs this,
// from the same numbers on every block and rank.
//
// Beamer 2012, section 5: bottom-up pays when the frontier's edges, times alpha, exceed the unexplored edges; top-down
// again when the frontier falls under 1 / beta of the vertices. Four things differ. A sparse level (few edges) never
// goes bottom-up: near the end of a mesh few edges are left unexplored, and a scan of all rows costs more than they do.
// After a dense level the edges are estimated first, as frontier vertices times the mean degree: early frontiers
// hold more than their share of hubs, so where the estimate says bottom-up the exact sum would too, and the pass that
// computes it is spared. The frontier, growing as it did, has to reach the rest in this level: in a mesh most rows are
// far from it, and would look through all of their edges in vain, level after level. And a row that a bottom-up level
// left open has looked at all of its edges there: so what that level looked at bounds what the next one can, and where
// the frontier has fewer edges, top-down is cheaper.
#pragma once
#include "resident/statistics.cuh"

namespace dbfs {

// What a rank tells at a barrier, of the frontier being made.
enum Word : u32 { kWordSent = 0, kWordVertices = 1, kWordEdges = 2, kWordTargets = 3 };
// After a bottom-up level kWordEdges is what it looked at. What the leader tells, of led levels: the frontier's length,
// its level, and the length of the frontier before.
enum LedWord : u32 { kWordLed = 0, kWordLedLevel = 1, kWordLedBefore = 2 };

// A rank's edges that a bottom-up level looks at in the time that the way back to top-down takes.
constexpr u64 kSpareEdges = 1 << 20;

__device__ __forceinline__ u64 gang_sum(const Params& a, const Block& b, Word word) {
  u64 sum = 0;
  for (u32 rank = 0; rank < (kGang ? a.ranks : 1); ++rank) sum += b.values[rank * kFlagWords + word];
  return sum;
}

__device__ __forceinline__ Slot* level_slot(const Params& a, u32 level) {
  return &a.control->slots[level % kLevelSlots];
}

// The counters a step adds to: of the frontier that it makes.
__device__ __forceinline__ Slot* step_slot(const Params& a, const Run& run) {
  if (run.step == kSettleStep || run.step == kTakeOverStep) {
    return &a.control->slots[kLevelSlots + run.level % kSettleSlots];
  }
  return level_slot(a, run.step < kExpandLightStep ? run.level : run.level + 1);
}

__device__ __forceinline__ bool step_sends(Step step) { return step == kExpandLightStep || step == kExpandSparseStep; }

__device__ __forceinline__ bool is_light(Step step) { return step == kExpandLightStep || step == kExpandLedStep; }

__device__ __forceinline__ float growth_of(const Run& run) {
  return (float)run.frontier.vertices / (float)max(run.expanded, (u64)1);
}

// For a frontier of so many edges that has grown so much.
__device__ __forceinline__ bool worth_bottom_up(const Params& a, const Run& run, float edges, float growth) {
  return edges * fminf(a.alpha, 1 + growth) > (float)run.unexplored && edges >= (float)run.looked_at;
}

// Whether what a dense level finds will be a queue: then it is queued at once. Where bottom-up would not pay even if the
// frontier grew twice as fast as before.
__device__ __forceinline__ bool queue_at_once(const Params& a, const Run& run) {
  if (a.direction != kAuto) return true;
  const float growth = 2 * growth_of(run);
  return !worth_bottom_up(a, run, (float)run.frontier.edges * growth, growth);
}

__device__ __forceinline__ u64 estimated_edges(const Params& a, u64 vertices) {
  return (u64)((float)vertices * ((float)a.edges_total / (float)a.vertices_total));
}

// Can the level be bottom-up without knowing the frontier's edges?
__device__ __forceinline__ bool surely_bottom_up(const Params& a, const Run& run) {
  const Frontier& f = run.frontier;
  if (a.direction != kAuto) return a.direction == kBottomUp;
  const u64 edges = estimated_edges(a, f.vertices);
  if (run.mode == kBottomUpLevel) {
    return (float)f.vertices * a.beta >= (float)a.vertices_total && edges + kSpareEdges * a.ranks >= run.looked_at;
  }
  return worth_bottom_up(a, run, (float)edges, growth_of(run));
}

// Light levels need small degrees, and room in the bins for every edge of the frontier; and nothing may hang on the
// labels of the next frontier before it is expanded. `a.light` says that the graph's degrees allow it.
__device__ __forceinline__ bool can_be_light(const Params& a, const Run& run) {
  return a.light && run.frontier.vertices * a.max_degree <= a.sparse_edges && !a.target_total &&
         run.level + 1 < a.max_depth && a.direction != kBottomUp;
}

// Light levels that one rank runs for all, reading their lists and writing their labels over NVLink: with few vertices a
// level costs less than a barrier across GPUs. From the first level on, until the frontier has grown.
__device__ __forceinline__ bool is_led(const Params& a, const Run& run) {
  return kGang && (run.level == 0 || run.mode == kLedLevel) && run.frontier.vertices <= a.led_vertices &&
         (run.level || a.source_count <= a.led_vertices);
}

__device__ __forceinline__ Mode choose(const Params& a, const Run& run) {
  if (a.direction == kBottomUp) return kBottomUpLevel;
  if (run.frontier.edges <= a.sparse_edges) return kSparseLevel;
  const bool pays = a.direction == kAuto && worth_bottom_up(a, run, (float)run.frontier.edges, growth_of(run));
  return pays ? kBottomUpLevel : kDenseLevel;
}

// The frontier of run.level lies there: what to do about it first.
__device__ __forceinline__ Step open_level(const Params& a, Run& run) {
  Frontier& f = run.frontier;
  if (f.vertices == 0) return kStopStep;
  if (can_be_light(a, run) && f.queued) {
    if (is_led(a, run)) {
      run.mode = kLedLevel;
      if (a.rank != kLeader) return kHandOverStep;
      if (!f.pending) run.small = a.source_count;
      return kExpandLedStep;
    }
    run.mode = kLightLevel;
    return kExpandLightStep;
  }
  if (f.pending) return kSettleStep;
  if (run.level >= a.max_depth || (a.target_total && run.targets >= a.target_total)) return kStopStep;
  if (!f.queued) {
    if (!surely_bottom_up(a, run)) return kCompactStep;
    run.mode = kBottomUpLevel;
    f.edges = estimated_edges(a, f.vertices);
  } else {
    run.mode = choose(a, run);
  }
  run.unexplored -= f.edges < run.unexplored ? f.edges : run.unexplored;
  if (run.mode == kBottomUpLevel) return f.mapped ? kScanStep : kClearBitsStep;
  return run.mode == kSparseLevel ? kExpandSparseStep : kExpandDenseStep;
}

// The short way from one light level to the next.
__device__ __forceinline__ void conclude_light(const Params& a, Block& b) {
  Run& run = b.run;
  const bool led = run.step == kExpandLedStep;
  run.small = (u32)b.values[kGang && !led ? a.rank * kFlagWords : 0];
  run.expanded = run.frontier.vertices;
  run.frontier.vertices = kGang && !led ? gang_sum(a, b, kWordVertices) : b.values[kWordVertices];
  run.frontier.pending = true;
  run.queue ^= 1;
  note_level(b);
  ++run.level;
  if (led) {
    const bool goes_on = run.frontier.vertices && can_be_light(a, run) && is_led(a, run);
    if (!goes_on) run.step = kHandOverStep;
  } else {
    run.step = open_level(a, run);
  }
}

// What the leader told: to all ranks, itself among them.
__device__ __forceinline__ void conclude_led(const Params& a, Block& b) {
  Run& run = b.run;
  run.level = (u32)b.values[kLeader * kFlagWords + kWordLedLevel];
  run.small = (u32)b.values[kLeader * kFlagWords + kWordLed];
  run.expanded = b.values[kLeader * kFlagWords + kWordLedBefore];
  run.queue = run.level & 1;
  run.mode = kLightLevel;
  if (a.rank != kLeader && blockIdx.x == 0) store_relaxed_sys(&a.host->led, run.level);
  run.step = run.small ? kTakeOverStep : kStopStep;
}

__device__ __forceinline__ void conclude(const Params& a, Block& b) {
  Run& run = b.run;
  Frontier& f = run.frontier;
  const Step done = run.step;
  const bool led = done == kExpandLedStep;
  if (done >= kExpandLightStep) b.level_frontier[run.level & 1] = kGang && !led ? run.own : f.vertices;
  if (step_sends(done) || led) {
    b.level_found[run.level & 1] = b.values[(led ? 0 : a.rank) * kFlagWords + kWordVertices];
  }
  if (is_light(done)) {
    conclude_light(a, b);
    return;
  }
  if (kGang && done == kHandOverStep) {
    conclude_led(a, b);
    return;
  }
  const u64 vertices = gang_sum(a, b, kWordVertices), edges = gang_sum(a, b, kWordEdges);
  bool level_done = false;
  switch (done) {
    case kResetStep:
      run.step = kStartStep;
      return;
    case kClearBitsStep:
    case kSetBitsStep:
      run.step = done == kClearBitsStep ? kSetBitsStep : kShareBitsStep;
      return;
    case kShareBitsStep:
      run.step = kScanStep;
      return;
    case kExpandDenseStep:
      run.queues = queue_at_once(a, run);
      run.step = kMergeStep;
      return;
    case kExpandSparseStep:
      if (kGang && vertices) {
        run.step = kContractStep;
        return;
      }
      level_done = true;
      break;
    case kStartStep:
      run.targets = gang_sum(a, b, kWordTargets);
      break;
    case kSettleStep:
    case kTakeOverStep:
      run.queue ^= 1;
      break;
    case kCompactStep:
      break;
    default:
      level_done = true;
  }
  if (level_done) run.expanded = f.vertices;
  if (done == kScanStep) run.looked_at = edges;
  // Only now: a queue that was settled is not counted where the steps from queue to bitmap count.
  run.small = (u32)b.values[kGang ? a.rank * kFlagWords : 0];
  run.own = b.values[(kGang ? a.rank * kFlagWords : 0) + kWordVertices];
  if (done == kCompactStep) {
    f.edges = edges;
    f.queued = true;
  } else {
    const bool bitmap = done == kMergeStep || done == kScanStep;
    f = {vertices, done == kScanStep ? 0 : edges, !bitmap || (done == kMergeStep && run.queues), bitmap, false};
  }
  if (level_done) {
    if (done == kScanStep) {
      run.turn ^= 1;
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
