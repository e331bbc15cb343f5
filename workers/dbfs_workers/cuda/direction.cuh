// What comes after a barrier: the next step, and which way the next level goes. One thread of each block runs this,
// from the same numbers on every block and rank.
//
// Beamer 2012, section 5: bottom-up pays when the frontier's edges, times alpha, exceed the unexplored edges; top-down
// again when the frontier falls under 1 / beta of the vertices. Two things differ. A sparse level (few edges) never
// goes bottom-up: near the end of a mesh few edges are left unexplored, and a scan of all rows costs more than they do.
// And after a dense level the edges are estimated first, as frontier vertices times the mean degree: early frontiers
// hold more than their share of hubs, so where the estimate says bottom-up the exact sum would too, and the pass that
// computes it is spared.
#pragma once
#include "statistics.cuh"

namespace dbfs {

// What a rank tells at a barrier, of the frontier being made.
enum Word : u32 { kWordSent = 0, kWordVertices = 1, kWordEdges = 2, kWordTargets = 3 };

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
  if (run.step == kSettleStep) return &a.control->slots[kLevelSlots + run.level % kSettleSlots];
  return level_slot(a, run.step < kExpandLightStep ? run.level : run.level + 1);
}

__device__ __forceinline__ bool step_sends(Step step) { return step == kExpandLightStep || step == kExpandSparseStep; }

__device__ __forceinline__ bool worth_bottom_up(const Params& a, u64 edges, u64 unexplored) {
  return (float)edges * a.alpha > (float)unexplored;
}

__device__ __forceinline__ u64 estimated_edges(const Params& a, u64 vertices) {
  return (u64)((float)vertices * ((float)a.edges_total / (float)a.vertices_total));
}

// Can the level be bottom-up without knowing the frontier's edges?
__device__ __forceinline__ bool surely_bottom_up(const Params& a, const Run& run) {
  const Frontier& f = run.frontier;
  if (a.direction != kAuto) return a.direction == kBottomUp;
  if (run.mode == kBottomUpLevel) return (float)f.vertices * a.beta >= (float)a.vertices_total;
  return worth_bottom_up(a, estimated_edges(a, f.vertices), run.unexplored);
}

// Light levels need small degrees, and room in the bins for every edge of the frontier; and nothing may hang on the
// labels of the next frontier before it is expanded. `a.light` says that the graph's degrees allow it.
__device__ __forceinline__ bool can_be_light(const Params& a, const Run& run) {
  return a.light && run.frontier.vertices * a.max_degree <= a.sparse_edges && !a.target_total &&
         run.level + 1 < a.max_depth && a.direction != kBottomUp;
}

__device__ __forceinline__ Mode choose(const Params& a, const Run& run) {
  if (a.direction == kBottomUp) return kBottomUpLevel;
  if (run.frontier.edges <= a.sparse_edges) return kSparseLevel;
  return a.direction == kAuto && worth_bottom_up(a, run.frontier.edges, run.unexplored) ? kBottomUpLevel : kDenseLevel;
}

// The frontier of run.level lies there: what to do about it first.
__device__ __forceinline__ Step open_level(const Params& a, Run& run) {
  Frontier& f = run.frontier;
  if (f.vertices == 0) return kStopStep;
  if (can_be_light(a, run) && f.queued) {
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
  run.small = (u32)b.values[kGang ? a.rank * kFlagWords : 0];
  run.frontier.vertices = gang_sum(a, b, kWordVertices);
  run.frontier.pending = true;
  run.queue ^= 1;
  note_level(b);
  ++run.level;
  run.step = open_level(a, run);
}

__device__ __forceinline__ void conclude(const Params& a, Block& b) {
  Run& run = b.run;
  Frontier& f = run.frontier;
  const Step done = run.step;
  if (kGang && step_sends(done)) b.level_found[run.level & 1] = b.values[a.rank * kFlagWords + kWordVertices];
  if (done == kExpandLightStep) {
    conclude_light(a, b);
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
      run.queue ^= 1;
      break;
    case kCompactStep:
      break;
    default:
      level_done = true;
  }
  // Only now: a queue that was settled is not counted where the steps from queue to bitmap count.
  run.small = (u32)b.values[kGang ? a.rank * kFlagWords : 0];
  if (done == kCompactStep) {
    f.edges = edges;
    f.queued = true;
  } else {
    const bool bitmap = done == kMergeStep || done == kScanStep;
    f = {vertices, edges, !bitmap || (done == kMergeStep && a.direction == kTopDown), bitmap, false};
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
