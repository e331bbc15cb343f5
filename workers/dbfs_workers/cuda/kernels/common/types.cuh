// Types, constants and the views that the host fills in. `layout.py` mirrors every struct here, field by field.
#pragma once
#include "generated/layout.cuh"

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

// Tuning; docs/decisions has the measurements.
constexpr u32 kSparseUnroll = 2;                                 // edges a lane inspects between two block barriers
constexpr u32 kSmallUnroll = 4;                                  // edges in flight per lane, lists of small vertices
constexpr u32 kChunkUnroll = 8;                                  // the same, chunks
constexpr u32 kPieces = kChunkEdges / (kLanes * kSparseUnroll);  // warps that share a chunk in a sparse level
constexpr u32 kRound = kThreads * kSparseUnroll;  // most that a block discovers between two block barriers
constexpr u32 kStage = 2 * kRound;                // ids a block holds back before it publishes
constexpr u32 kUnitWords = 8;                     // bitmap words that a warp settles at a time, bottom-up
constexpr u32 kSerialEdges = 16;                  // edges a lane probes alone before the warp helps

constexpr u32 kKeep = 120;      // vertices a block keeps for itself from one light level to the next
constexpr u32 kKeepDegree = 8;  // where no vertex has more neighbours

}  // namespace dbfs
