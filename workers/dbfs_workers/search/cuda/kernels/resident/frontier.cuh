// The two forms of the frontier, and the steps that convert one into the other where the direction changes.
#pragma once
#include "search/cuda/kernels/resident/merge.cuh"

namespace dbfs {

// Bitmap to queue, for this rank's slice. A warp takes up to 32 words. Reads n_local / 8 bytes, and 16 bytes a vertex.
__device__ __forceinline__ void compact(const Params& a, Block& b, Slot* slot) {
  const u32 words = used_words(a);
  const u32* slice = a.peers[a.rank].frontier + ((u64)b.run.bitmap * a.ranks + a.rank) * a.words_local;
  for (u32 step = 0; first_word(step) < words; ++step) {
    const u32 word = lane_word(step);
    // A run that counts degrees has counted them when it labelled the rows.
    enqueue_words(a, b, slot, b.run.queue, word, word < words ? slice[word] : 0, !counts_degrees(a));
  }
}

// Queue to bitmap in three steps: clear the slice, set its bits, copy it to the peers. Only a bottom-up level after a
// sparse one needs it; a dense level leaves a bitmap. A thread takes a word or a vertex. Vertices without neighbours
// are in no queue; they are never a parent.
__device__ __forceinline__ void convert(const Params& a, const Block& b) {
  const u32 thread = blockIdx.x * kThreads + threadIdx.x, threads = gridDim.x * kThreads;
  const u32 words = (a.rows_used + 31) / 32, queue = b.run.queue;
  const u64 at = ((u64)b.run.bitmap * a.ranks + a.rank) * a.words_local;
  u32* slice = a.peers[a.rank].frontier + at;
  if (b.run.step == Step::kClearBits) {
    for (u32 word = thread; word < words; word += threads) slice[word] = 0;
  } else if (b.run.step == Step::kSetBits) {
    for (u32 i = thread; i < b.run.small; i += threads) {
      set_bit(slice, a.queues[queue][i]);
    }
    for (u32 i = thread; i < b.run.chunks; i += threads) {
      const u64 item = a.chunks[queue][i];
      const u32 row = (u32)(item >> 32);
      if ((u32)item == 0) set_bit(slice, row);
    }
  } else if (kGang) {
    for (u32 word = thread; word < words; word += threads) {
      const u32 bits = slice[word];
      for (u32 rank = 0; rank < a.ranks; ++rank) {
        if (rank != a.rank) a.peers[rank].frontier[at + word] = bits;
      }
    }
  }
}

}  // namespace dbfs
