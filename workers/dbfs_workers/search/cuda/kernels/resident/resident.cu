// The resident engine: one persistent cooperative kernel per rank runs every level of one traversal.
//
// A traversal is a sequence of steps (enum Step), and a barrier ends each. All blocks hold the same view of the run
// (Run in block.cuh), so all of them take the same step. There are five kinds of levels:
//   light      expand (queue to queue), gang barrier; the next level labels the vertices that it takes. A rank alone
//              runs many of them in one loop, over a table of neighbours
//   leader     a light level that rank 0 runs for all ranks, which wait at their next barrier until it hands over
//   sparse     expand (queue to queue), gang barrier, contract the vertices that peers sent, gang barrier
//   dense      expand (queue to bitmap), gang barrier, merge the ranks' bitmaps, gang barrier
//   bottom-up  search the frontier bitmap, gang barrier
// docs/design/resident-kernel.md has the picture.
#include "search/cuda/kernels/resident/bottom_up.cuh"
#include "search/cuda/kernels/resident/contract.cuh"
#include "search/cuda/kernels/resident/direction.cuh"
#include "search/cuda/kernels/resident/expand_dense.cuh"
#include "search/cuda/kernels/resident/expand_light.cuh"
#include "search/cuda/kernels/resident/expand_sparse.cuh"
#include "search/cuda/kernels/resident/expand_table.cuh"
#include "search/cuda/kernels/resident/frontier.cuh"
#include "search/cuda/kernels/resident/start.cuh"
#include "search/cuda/kernels/resident/statistics.cuh"

namespace dbfs {

// Thread 0 sets the block's view of the run to its start.
__device__ __forceinline__ void start_block(const Params& a, Block& b) {
  if (threadIdx.x == 0) {
    b.run = {};
    b.run.step = Step::kReset;
    b.run.unexplored = a.edges_total;
    b.staged = b.kept = b.queued = b.ended = b.noted = b.reported = 0;
    // Reported even for levels that do not set them. Stale shared memory would not fit the 48 bits of a record.
    for (u32 i = 0; i < 2; ++i) b.level_frontier[i] = b.level_found[i] = 0;
    b.alive = 1;
    b.epoch = (u32)a.control->epoch.value;
    // Faster blocks may have arrived at the first barrier. Their arrivals are masked; they add nothing else there.
    b.round = 0;
    for (u32 i = 0; i < 2; ++i) b.barriers[i] = load_relaxed(&a.control->barriers[i].value) & ~(u64)(kTurned - 1);
    b.deadline = now_ns() + a.timeout_ns;
    if (blockIdx.x == 0) store_relaxed_sys(&a.host->begin_ns, now_ns());
  }
  if (threadIdx.x < kTotals) b.tally[threadIdx.x] = 0;
  if (threadIdx.x < kMaxRanks) b.staged_for[threadIdx.x] = 0;
  if (threadIdx.x < kTotalCount) b.totals[threadIdx.x] = 0;
  __syncthreads();
}

// Run the step that the block is at, without the barrier that ends it.
__device__ __forceinline__ void perform(const Params& a, Block& b) {
  Slot* const slot = step_slot(a, b.run);
  const Output next = {b.run.queue ^ 1, slot, (b.run.level + 1) & 1, b.run.level + 1};
  switch (b.run.step) {
    case Step::kReset:
      reset(a);
      break;
    case Step::kStart:
      place_sources(a, b, {0, slot, 0, 0});
      break;
    case Step::kSettle:
      contract(a, b, {b.run.queue ^ 1, slot, b.run.level & 1, b.run.level}, true);
      break;
    case Step::kContract:
      contract(a, b, next, false);
      break;
    case Step::kCompact:
      compact(a, b, slot);
      break;
    case Step::kClearBits:
    case Step::kSetBits:
    case Step::kShareBits:
      convert(a, b);
      break;
    case Step::kHandOver:
      if (kGang) hand_over(a, b, slot);
      break;
    case Step::kTakeOver:
      if (kGang) take_over(a, b, {b.run.queue ^ 1, slot, b.run.level & 1, b.run.level});
      break;
    case Step::kExpandLight:
      expand_light<kUsualRole>(a, b, next);
      break;
    case Step::kExpandLeader:
      if (kGang) expand_light<Role::kLeader>(a, b, next);
      break;
    case Step::kExpandSparse:
      expand_sparse(a, b, next);
      break;
    case Step::kExpandDense:
      expand_dense(a, b);
      break;
    case Step::kMerge:
      merge(a, b, slot);
      break;
    case Step::kScan:
      bottom_up(a, b);
      break;
    case Step::kStop:
      break;
  }
}

// Run all steps. A block leaves early when a wait was given up. Thread 0 of block 0 reports times and status to the
// host.
__device__ __forceinline__ void traverse(const Params& a, Block& b) {
  const bool reports = blockIdx.x == 0 && threadIdx.x == 0;
  while (b.run.step != Step::kStop) {
    if (!kGang && a.table && b.run.step == Step::kExpandLight) {
      if (!table_levels(a, b)) return;
      continue;
    }
    perform(a, b);
    if (reports && b.run.step == Step::kReset) store_relaxed_sys(&a.host->reset_ns, now_ns());
    if (!end_step(a, b)) return;
    if (reports && b.run.step == Step::kStart) {
      b.level_began = clock64();
      store_relaxed_sys(&a.host->gate_ns, now_ns());
      store_relaxed_sys(&a.host->gate_cycles, b.level_began);
    }
  }
  if (threadIdx.x == 0) b.noted = b.ended;
  __syncthreads();
  report_level(a, b);
  if (reports) {
    a.control->epoch.value = b.epoch;
    store_relaxed_sys(&a.host->levels, b.run.level);
    store_relaxed_sys(&a.host->end_ns, now_ns());
    store_relaxed_sys(&a.host->end_cycles, clock64());
    __threadfence_system();
    store_relaxed_sys(&a.host->status, pack_status(a, Reason::kFinished, b.run));
  }
}

}  // namespace dbfs

// The grid fills the GPU, one or more blocks a multiprocessor, and lives as long as the traversal.
extern "C" __global__ void __launch_bounds__(dbfs::kThreads, dbfs::kBlocksPerSm)
    dbfs_resident(const __grid_constant__ dbfs::Params a) {
  __shared__ dbfs::Block b;
  dbfs::start_block(a, b);
  dbfs::traverse(a, b);
}
