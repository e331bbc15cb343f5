// Types, constants and the views that the host fills in. `layout.py` mirrors every struct here, field by field.
#pragma once
#include "common/scalars.cuh"

namespace dbfs {

// Chosen when the kernel is compiled (module.py), so that what is not wanted costs no register.
constexpr bool kPredecessors = DBFS_PREDECESSORS;  // record parents beside distances
constexpr bool kGang = DBFS_GANG;                  // several ranks
constexpr u32 kThreads = DBFS_THREADS;             // a block's threads
constexpr u32 kBlocksPerSm = DBFS_BLOCKS_PER_SM;

constexpr u32 kLanes = 32;
constexpr u32 kAll = 0xffffffffu;
constexpr u32 kNoVertex = 0xffffffffu;
constexpr u32 kWarps = kThreads / kLanes;
constexpr u32 kLeader = 0;    // the rank that runs led levels
constexpr u32 kMaxRanks = 8;  // a warp carries the flags of all ranks: 8 ranks of 4 words
constexpr u32 kFlagWords = 4;
constexpr u32 kFlagSlots = 4;  // a rank is at most one barrier ahead of another; two slots would do

// Tuning; NOTES.md has the measurements.
constexpr u32 kLargeDegree = 256;  // a vertex with more neighbours is cut into chunks, one warp each
constexpr u32 kChunkEdges = 512;
constexpr u32 kSparseUnroll = 2;                                 // edges a lane inspects between two block barriers
constexpr u32 kSmallUnroll = 4;                                  // edges in flight per lane, lists of small vertices
constexpr u32 kChunkUnroll = 8;                                  // the same, chunks
constexpr u32 kPieces = kChunkEdges / (kLanes * kSparseUnroll);  // warps that share a chunk in a sparse level
constexpr u32 kLevelSlots = 4;  // level counters in turn: made, read, reported and cleared, idle
constexpr u32 kSettleSlots = 3;
constexpr u32 kRound = kThreads * kSparseUnroll;  // most that a block discovers between two block barriers
constexpr u32 kStage = 2 * kRound;                // ids a block holds back before it publishes
constexpr u32 kUnitWords = 8;                     // bitmap words that a warp settles at a time, bottom-up
constexpr u32 kSerialEdges = 16;                  // edges a lane probes alone before the warp helps

constexpr u32 kKeep = 120;      // vertices a block keeps for itself from one light level to the next
constexpr u32 kKeepDegree = 8;  // where no vertex has more neighbours

enum Direction : u32 { kAuto = 0, kTopDown = 1, kBottomUp = 2 };
enum Mode : u32 { kSparseLevel = 0, kDenseLevel = 1, kBottomUpLevel = 2, kLightLevel = 3, kLedLevel = 4 };
// What a rank does between two barriers. resident.py names them to users.
enum Step : u32 {
  kResetStep = 1,
  kStartStep,
  kSettleStep,
  kCompactStep,
  kClearBitsStep,
  kSetBitsStep,
  kShareBitsStep,
  kHandOverStep,
  kTakeOverStep,
  kExpandLightStep,
  kExpandLedStep,
  kExpandSparseStep,
  kContractStep,
  kExpandDenseStep,
  kMergeStep,
  kScanStep,
  kStopStep
};
enum Reason : u32 { kRunning = 0, kAborted = 1, kDeadline = 2, kFinished = 3 };

// Level counters, each on a cache line of its own: atomics on one line queue behind each other.
enum Counter : u32 { kSmall = 0, kChunks, kSent, kTotals = kSent + kMaxRanks };
// Totals are summed in shared memory and added once a block: a level's statistics and its termination.
// The frontier is counted in light levels of several ranks, inspected edges in bottom-up levels.
enum Total : u32 { kDiscovered = 0, kEdges, kTargets, kExpanded, kInspected, kTotalCount };

struct alignas(128) Line {
  u64 value;
};

struct Slot {
  Line lines[kTotals + kTotalCount];
};

struct Csr {
  const i64* offsets;
  const u32* columns;
};

// What one rank exports to its peers, as mapped into this rank's address space.
struct Peer {
  u32* inbox;          // [2][ranks][bin_capacity] rows on that rank, by level parity and sender
  u32* inbox_parents;  // the same shape, internal ids of the parents
  u64* flags;          // [kFlagSlots][kMaxRanks][kFlagWords]
  u32* visited;        // [words] every internal id that rank knows to be visited
  u32* frontier;       // [2][words] frontier bitmap, by turn
  u32* parents;        // [ranks * n_local] parents it chose; its own slice is its predecessor array
  i32* distances;      // [n_local]
  u32* led;            // [2][led_capacity] internal ids: the queues of led levels
  u32* led_parents;    // the same shape
  Csr out;             // mapped where this rank may lead
};

// Each word is tag:16 | value:48, the tag that of the level (statistics.cuh): a word with it is complete by itself, and
// the host needs no order among the words that it finds. A rank alone writes the first line only. What labels tell when
// the run is over is not here, or only roughly, for those who ask where it is.
struct alignas(64) LevelRecord {
  u64 frontier;
  u64 looked_at;  // edges, in a bottom-up level
  u64 discovered, cycles, mode;
  u64 sent;   // several ranks: vertices sent to others in bins; in a dense level, parents read from others
  u64 found;  // several ranks, bins: vertices found for this rank or another, before their owners looked
};

// Pinned host memory, mapped: the host writes `abort` and `drained`, the device all else.
struct HostView {
  u64 abort;
  u64 drained;  // levels whose records the host has taken
  u64 status;  // reason:8 | rank:8 | step:8 | blank:8 | level:32
  u64 level;
  u64 levels;
  u64 led;  // levels that another rank led, before this one's first
  u64 begin_ns, reset_ns, gate_ns, end_ns;
  u64 gate_cycles, end_cycles;
  LevelRecord records[1];  // [stats_capacity], a ring; a power of two
};

// This rank's own device memory, kept between runs.
struct Control {
  // queued:32 | kept:16 | arrivals:16, whose top bit turns when all blocks have come; the upper fields count light
  // discoveries. Two words, by turns: a fast block may arrive at the next barrier before a slow one has read this sum.
  Line barriers[2];
  Line gang_barrier;  // arrivals:16 only, of the barriers that all ranks pass
  Line stop;   // packed status of the first block that gave up, else 0
  Line epoch;  // gang barriers passed so far, the same on all ranks
  Slot slots[kLevelSlots + kSettleSlots];
};

struct Params {
  Peer peers[kMaxRanks];
  Csr out, in;
  const u32* first_in;  // [n_local] one in-neighbour (the best: a hub), kNoVertex without
  i32* distances;
  u32* known;         // [words_local] the rows labelled so far, and those that never will be
  const u32* closed;  // [words_local] rows without in-edges, or null
  u32* queues[2];
  u32* queue_parents[2];  // parents of rows queued before they are labelled, internal ids
  u64* chunks[2];         // row:32 | chunk:32
  Control* control;
  HostView* host;
  const u32* sources;      // [source_count] internal ids
  const u32* target_bits;  // [words_local], or null
  u64 target_total;        // targets on all ranks
  u64 edges_total, vertices_total;
  u64 timeout_ns;
  u64 sparse_edges;  // a frontier with more edges than this is expanded into the bitmap
  u32 source_count, rank, ranks, n_local, words_local, rows_used, bin_capacity, max_depth, max_degree, direction,
      stats_capacity;
  u32 light;  // light levels: 1 + log2 of the lanes that share a vertex, or 0 where there are none
  u32 led_vertices;  // a frontier of up to so many is led; 0: the ranks' lists can't be mapped
  u32 led_capacity;
  float alpha, beta;
  u32 reset_rows;
};

}  // namespace dbfs
