// Compile-time options, tuning constants and roles. Structs, enums and constants that the host shares are in
// generated/layout.cuh, which layout.py makes.
#pragma once
#include "generated/layout.cuh"

namespace dbfs {

// The part that a rank plays in a step.
enum class Role : u32 {
  kSingle,  // the only rank of its graph
  kPeer,    // one of several ranks: discovers vertices for their owners, and waits for all ranks at the barrier
  kLeader,  // rank kLeader in a leader level: runs the level for all ranks, and waits for its own blocks only
};

// Options of module.py. They are constants, so that a feature that is switched off costs no register.
constexpr bool kPredecessors = DBFS_PREDECESSORS;  // record parents beside distances
constexpr bool kGang = DBFS_GANG;                  // several ranks
constexpr u32 kThreads = DBFS_THREADS;             // threads of a block
constexpr u32 kBlocksPerSm = DBFS_BLOCKS_PER_SM;

// The role of a rank in every step except a leader level, and the role of a rank that waits for no other.
constexpr Role kUsualRole = kGang ? Role::kPeer : Role::kSingle;
constexpr Role kAloneRole = kGang ? Role::kLeader : Role::kSingle;

constexpr u32 kLanes = 32;
constexpr u32 kAll = 0xffffffffu;
constexpr u32 kNoVertex = 0xffffffffu;
constexpr u32 kWarps = kThreads / kLanes;

// Tuning. docs/decisions has the measurements.
constexpr u32 kSparseUnroll = 2;                                 // edges a lane inspects between two block barriers
constexpr u32 kSmallUnroll = 4;                                  // edges in flight per lane, lists of small vertices
constexpr u32 kChunkUnroll = 8;                                  // edges in flight per lane, chunks
constexpr u32 kPieces = kChunkEdges / (kLanes * kSparseUnroll);  // warps that share a chunk in a sparse level
constexpr u32 kRound = kThreads * kSparseUnroll;                 // most discoveries between two block barriers
constexpr u32 kStage = 2 * kRound;                               // ids a block holds back before it publishes
constexpr u32 kTinyEdges = 1 << 16;  // of a frontier; with fewer, a claim without a look is faster
// Bitmap words that a warp enqueues together, as many as spill no register.
constexpr u32 kEnqueued = kGang && kPredecessors ? 3 : 4;
constexpr u32 kFewChunks = 4;  // of a vertex, up to which one lane writes them
constexpr u32 kUnitWords = 8;     // bitmap words that a warp settles at a time, bottom-up
constexpr u32 kSerialEdges = 16;  // edges a lane probes alone before the warp helps, bottom-up

// Most vertices that a block keeps for itself from one light level to the next. A rank alone has a half for each.
constexpr u32 kKeep = kGang ? 120 : kThreads / 4;
constexpr u32 kHalves = kGang ? 1 : 2;
// Threads of a block that run light levels of few vertices over a table: one warp waits, and another one reports.
constexpr u32 kFewThreads = kThreads / 2;
constexpr u32 kFewEach = 96;               // vertices a block up to which those are few
constexpr u32 kEager = 1 << 14;            // vertices of a level up to which rows are read before they are claimed
constexpr u32 kDealMany = 32;              // levels after which many vertices are dealt to the blocks anew
constexpr u32 kDealFew = 16;               // the same for few vertices, if they are more than the blocks
constexpr u32 kDealtFew = 16;              // vertices a block up to which those are few
constexpr u32 kKeepDegree = 8;  // blocks keep vertices only in graphs of at most this degree

}  // namespace dbfs
