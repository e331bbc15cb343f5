// The decisions of search/cuda/kernels/resident/direction.cuh on a CPU: arithmetic of one thread, on the structs of the
// resident kernel. Of the headers before it, what they take from PTX and from other steps is left out.
#include "cuda_on_cpu.h"

#include <cmath>

#include "search/cuda/kernels/common/types.cuh"

namespace dbfs {

template <class T>
inline T max(T a, T b) {
  return a < b ? b : a;
}
inline u32 lane_id() { return 0; }
inline u32 warp_sum(u32 v) { return v; }
inline void store_relaxed_sys(u64* p, u64 v) { *p = v; }

}  // namespace dbfs

#include "search/cuda/kernels/resident/block.cuh"

namespace dbfs {

inline void note_level(Block&) {}

}  // namespace dbfs

#include "search/cuda/kernels/resident/direction.cuh"

// A case: what is known before a level. The fields of `Params` that change from case to case come first.
struct Case {
  u64 direction, mode, vertices, edges, unexplored, expanded, looked_at;
};

// By case: whether bottom-up pays for the frontier's edges and its growth, whether a dense level queues at once, whether
// the level can be bottom-up without the edges, and the kind of a level whose edges are known.
extern "C" void decide(dbfs::Params* a, const Case* cases, u64 count, u32* answers) {
  using namespace dbfs;
  for (u64 i = 0; i < count; ++i) {
    const Case& of = cases[i];
    a->direction = (Direction)of.direction;
    Run run = {};
    run.mode = (Mode)of.mode;
    run.frontier.vertices = of.vertices;
    run.frontier.edges = of.edges;
    run.unexplored = of.unexplored;
    run.expanded = of.expanded;
    run.looked_at = of.looked_at;
    answers[4 * i] = worth_bottom_up(*a, run, (float)of.edges, growth_of(run));
    answers[4 * i + 1] = queue_at_once(*a, run);
    answers[4 * i + 2] = surely_bottom_up(*a, run);
    answers[4 * i + 3] = (u32)choose(*a, run);
  }
}
