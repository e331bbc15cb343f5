// Messages between ranks (backends/cuda_messages.py): packing them behind the phases that fill the bins, and contracting
// what comes, so that the host waits once a level. A message has a header (`HeaderWord`), then rows of the bin, as many
// parents, and means nothing behind the bin's size. `entries` is how many have room. Messages to all ranks lie one
// behind another, and so do those from all ranks.
#include "common/search.cuh"
#include "phases/reserve.cuh"

namespace dbfs {

constexpr u32 kHeaderWords = 16;
// Words of a header: see cuda/communicator.py.
enum HeaderWord : u32 {
  kHeaderNumber = 0,
  kHeaderCrossing,
  kHeaderRun,
  kHeaderSize,
  kHeaderFound,
  kHeaderEdges,
  kHeaderMissing,
  kHeaderExtra,
  kHeaderSearched,
  kHeaderStart
};
// Words of a result: see cuda/communicator.py.
enum ResultWord : u32 { kResultOwn = 0, kResultQueued, kResultEdges, kResultSizes };
// Sums of a level: see phases/levels.cu.
enum MessageSum : u32 { kSumEdges = 0, kSumEnds };

__device__ __forceinline__ u64* header_of(u64* messages, u32 peer, u32 entries) {
  return messages + (u64)peer * (kHeaderWords + entries);
}

// Copy the entries of a bin from place `start` on, if they go with the header. All threads of a block call it.
__device__ __forceinline__ void copy_entries(u64* header, u32 entries, u64 start, u64 size, const u32* bin_rows,
                                             const u32* bin_parents) {
  if (size > entries) return;
  u32* rows = (u32*)(header + kHeaderWords);
  for (u64 i = threadIdx.x; i < size; i += blockDim.x) {
    rows[i] = bin_rows[start + i];
    if (bin_parents) rows[entries + i] = bin_parents[start + i];
  }
}

}  // namespace dbfs

// pack: a block a peer. Takes the headers from the host, which has written them to pinned memory, with the first place
// of each peer's new entries. Copies 128 bytes of header, and 4 bytes an entry (8 with parents).
extern "C" __global__ void dbfs_pack(const u64* headers, const u32* bin_rows, const u32* bin_parents, u32 entries,
                                     u64* messages) {
  using namespace dbfs;
  const u32 peer = blockIdx.x;
  const u64* from = headers + (u64)peer * kHeaderWords;
  u64* header = header_of(messages, peer, entries);
  if (threadIdx.x < kHeaderWords) header[threadIdx.x] = from[threadIdx.x];
  copy_entries(header, entries, from[kHeaderStart], from[kHeaderSize], bin_rows, bin_parents);
}

// pack_level: the same behind `top_down`, whose sums make the header. `sent` has the ends of the bins at the crossing
// before. Without an expanded frontier the sum of the edges is of an earlier level.
extern "C" __global__ void dbfs_pack_level(const dbfs::Line* sums, const u64* sent, const u32* bin_rows,
                                           const u32* bin_parents, u32 n_local, u32 rank, u32 expanded, i64 number,
                                           i64 crossing, i64 run, u32 entries, u64* messages) {
  using namespace dbfs;
  const u32 peer = blockIdx.x;
  if (peer == rank) return;
  u64* header = header_of(messages, peer, entries);
  const u64 start = sent[peer], size = sums[kSumEnds + peer].value - start;
  if (threadIdx.x == 0) {
    u64 found = sums[kSumEnds + rank].value;
    for (u32 other = 0; other < gridDim.x; ++other) {
      if (other != rank) found += sums[kSumEnds + other].value - sent[other];
    }
    header[kHeaderNumber] = number;
    header[kHeaderCrossing] = crossing;
    header[kHeaderRun] = run;
    header[kHeaderSize] = size;
    header[kHeaderFound] = found;
    header[kHeaderEdges] = expanded ? sums[kSumEdges].value : 0;
    header[kHeaderMissing] = header[kHeaderExtra] = header[kHeaderSearched] = header[kHeaderStart] = 0;
  }
  copy_entries(header, entries, (u64)peer * n_local + start, size, bin_rows, bin_parents);
}

// contract_messages: labels and queues the new rows that came with the headers, behind the rank's own discoveries, and
// writes the level's result for the host. One block. A header of another crossing is left alone; the host will see it.
// The own sum is left as it is if a larger bin follows, whose rows are queued behind; else it is cleared. Reads 128
// bytes a peer, 4 (8) bytes and a bit a row; writes 8 (12) bytes a new row.
extern "C" __global__ void dbfs_contract_messages(u64* messages, dbfs::Line* sums, u64* sent, u32 rank, u32 ranks,
                                                  u32 expanded, i64 number, i64 crossing, i64 run, u32 entries,
                                                  u32* visited, i32 distance, i32* distances, u32* predecessors,
                                                  u32* discovered, i64* result) {
  using namespace dbfs;
  u64* queued = &sums[kSumEnds + rank].value;
  if (threadIdx.x == 0) result[kResultOwn] = *queued;
  __syncthreads();
  bool follow = false;
  for (u32 peer = 0; peer < ranks; ++peer) {
    const u64* header = header_of(messages, peer, entries);
    if (peer == rank || header[kHeaderNumber] != (u64)number || header[kHeaderCrossing] != (u64)crossing ||
        header[kHeaderRun] != (u64)run) {
      continue;
    }
    const u64 size = header[kHeaderSize];
    if (size > entries) {
      follow = true;
      continue;
    }
    const u32* rows = (const u32*)(header + kHeaderWords);
    for (u64 i = threadIdx.x; i < size; i += blockDim.x) {
      const u32 row = rows[i];
      if (!claim_unseen(visited, row)) continue;
      distances[row] = distance;
      if (predecessors) predecessors[row] = rows[entries + i];
      discovered[reserve(queued, __activemask())] = row;
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    result[kResultQueued] = *queued;
    result[kResultEdges] = expanded ? sums[kSumEdges].value : 0;
    if (!follow) *queued = 0;
  }
  for (u32 peer = threadIdx.x; peer < ranks; peer += blockDim.x) {
    if (peer == rank) continue;
    const u64 end = sums[kSumEnds + peer].value;
    result[kResultSizes + peer] = end - sent[peer];
    sent[peer] = end;
  }
}
