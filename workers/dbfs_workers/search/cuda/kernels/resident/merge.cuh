// After a dense level: each owner gathers its slice of every rank's bitmap and labels the new rows.
//
// A warp takes 32 words at a time, one a lane: the OR of the ranks' words, less the known rows. The 32 lanes then label
// the set bits of a word together. New words become the frontier bitmap here and, if the next level may be bottom-up,
// on every peer, so that the switch costs nothing more. With predecessors the parent is read from the rank that set the
// bit. The rows are also queued if the next level will be top-down. Reads n_local / 8 bytes from each peer over NVLink,
// writes as much to each, and 4 bytes a new vertex.
#pragma once
#include "search/cuda/kernels/resident/barrier.cuh"
#include "search/cuda/kernels/resident/degree_sums.cuh"

namespace dbfs {

// How warps share the words of this rank's slice: some neighbouring words are a group, a warp takes a word a lane each
// step, and the groups are dealt out one by one. New bits lie side by side: in degree order those of hubs, in communities
// and meshes those of a level. A warp that took many neighbouring words queued all of them alone: with eight words a
// group a level of coPapersCiteseer waited 14 us for a few warps. From and to a peer go whole sectors of 32 bytes.
constexpr u32 kGroupWords = kGang ? 8 : 2;

// Words of the slice up to the last row with an edge.
__device__ __forceinline__ u32 used_words(const Params& a) { return (a.rows_used + 31) / 32; }

// This warp's first word in a step.
__device__ __forceinline__ u32 first_word(u32 step) {
  return (step * (kLanes / kGroupWords) * warps_in_grid() + warp_in_grid()) * kGroupWords;
}

// This lane's word in a step; may be past the last.
__device__ __forceinline__ u32 lane_word(u32 step) {
  return first_word(step) + lane_id() / kGroupWords * warps_in_grid() * kGroupWords + lane_id() % kGroupWords;
}

// The warp labels the rows of `bits`, a word a lane. The parents are those that rank `from` chose.
__device__ __forceinline__ void label_words(const Params& a, u32 own_word, u32 bits, u32 from, u32 distance) {
  const u32 lane = lane_id();
  for (u32 left = __ballot_sync(kAll, bits != 0); left; left &= left - 1) {
    const u32 j = __ffs(left) - 1;
    const u32 word = __shfl_sync(kAll, own_word, j);
    if (has_bit(__shfl_sync(kAll, bits, j), lane)) {
      const u32 row = word * kLanes + lane, id = a.rank * a.n_local + row;
      a.distances[row] = (i32)distance;
      if (kPredecessors && from != a.rank)
        a.peers[a.rank].parents[id] = load_shared_by_gang(&a.peers[from].parents[id]);
    }
  }
}

// Write a word of the frontier bitmap: to all ranks if a level may be bottom-up.
__device__ __forceinline__ void write_frontier(const Params& a, u32 bitmap, u32 word, u32 bits) {
  const u64 at = (u64)bitmap * a.ranks * a.words_local + a.rank * a.words_local + word;
  if (kGang && a.direction != Direction::kTopDown) {
    for (u32 rank = 0; rank < a.ranks; ++rank) a.peers[rank].frontier[at] = bits;
  } else {
    a.peers[a.rank].frontier[at] = bits;
  }
}

__device__ __forceinline__ void merge(const Params& a, Block& b, Slot* slot) {
  const u32 slice = a.rank * a.words_local;
  const u32 level = b.run.level, bitmap = b.run.bitmap, queue = b.run.queue ^ 1;
  const u32 words = used_words(a);
  u64 discovered = 0, edges = 0, targets = 0;
  u32 fetched = 0;
  for (u32 step = 0; first_word(step) < words; ++step) {
    const u32 word = lane_word(step);
    const bool on = word < words;
    const u32 known = on ? a.known[word] : kAll, common = common_degree(a, on, word);
    u32 fresh = on ? load_shared_by_gang(&a.peers[a.rank].visited[slice + word]) & ~known : 0;
    if (kGang && kPredecessors) {
      label_words(a, word, fresh, a.rank, level + 1);
      for (u32 rank = 0; rank < a.ranks; ++rank) {
        const u32 theirs = on && rank != a.rank ? load_shared_by_gang(&a.peers[rank].visited[slice + word]) : 0;
        const u32 more = theirs & ~known & ~fresh;
        fresh |= more;
        fetched += __popc(more);
        label_words(a, word, more, rank, level + 1);
      }
    } else if (kGang) {
#pragma unroll
      for (u32 rank = 0; rank < kMaxRanks; ++rank) {  // unrolled: all ranks' words are in flight together
        if (on && rank < a.ranks && rank != a.rank) {
          fresh |= load_shared_by_gang(&a.peers[rank].visited[slice + word]) & ~known;
        }
      }
    }
    if (!kGang || !kPredecessors) label_words(a, word, fresh, a.rank, level + 1);
    if (on) {
      if (fresh) {
        a.known[word] = known | fresh;
        if (kGang) a.peers[a.rank].visited[slice + word] = known | fresh;
      }
      write_frontier(a, bitmap, word, fresh);
      if (a.target_bits) targets += __popc(fresh & __ldg(&a.target_bits[word]));
    }
    discovered += __popc(fresh);
    if (b.run.queues) {
      enqueue_words(a, b, slot, queue, word, fresh, true);
    } else if (counts_degrees(a)) {
      edges += degrees_of(a, word, fresh, common);
    }
  }
  add_total(b, kDiscovered, discovered);
  if (counts_degrees(a)) add_total(b, kEdges, edges);
  if (kGang && kPredecessors) {
    fetched = warp_sum(fetched);
    if (lane_id() == 0 && fetched) atomicAdd(&b.tally[kSent], fetched);
    __syncthreads();
    if (threadIdx.x == 0) {
      const u32 of_block = atomicExch(&b.tally[kSent], 0u);
      // The counter of vertices sent to this rank itself, which nothing else uses.
      if (of_block) atomicAdd(&slot->lines[kSent + a.rank].value, (u64)of_block);
    }
  }
  if (a.target_bits) add_total(b, kTargets, targets);
}

}  // namespace dbfs
