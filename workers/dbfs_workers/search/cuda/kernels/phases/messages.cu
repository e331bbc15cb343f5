// Messages between ranks (search/cuda/messages.py): packing them behind the phases that fill the bins, and contracting
// what comes, so that the host waits once a level. A message has a header (`HeaderWord`), then rows of the bin, as many
// parents, and means nothing behind the bin's size. `entries` is how many have room. Messages to all ranks lie one
// behind another, and so do those from all ranks.
//
// Small levels may be queued ahead, before the host has seen the ones before. Such a level takes its frontier's size
// from `progress`, where the contraction before has left it. Where that contraction has halted the queue, all later
// levels send empty messages and change nothing. All ranks halt at the same level, by sums that all of them have.
#include "search/cuda/kernels/common/search.cuh"
#include "search/cuda/kernels/phases/reserve.cuh"
#include "generated/words.cuh"

namespace dbfs {

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

namespace dbfs {

// What a crossing is known by: see `Tag` in search/cuda/communicator.py.
struct Tag {
  i64 number, crossing, run;
};

// Write the header of a level's message. `large` is 1 if any bin of the rank is too large for its message.
__device__ __forceinline__ void write_header(u64* header, Tag tag, u64 size, u64 found, u64 edges, u64 large,
                                             u64 searched = 0) {
  header[kHeaderNumber] = tag.number;
  header[kHeaderCrossing] = tag.crossing;
  header[kHeaderRun] = tag.run;
  header[kHeaderSize] = size;
  header[kHeaderVertices] = found;
  header[kHeaderEdges] = edges;
  header[kHeaderLarge] = large;
  header[kHeaderSearched] = searched;
  header[kHeaderMissing] = header[kHeaderStart] = 0;
}

// Pack the message to a peer behind a level whose sums make the header. All threads of a block call it. `sent` has the
// ends of the bins at the crossing before.
__device__ __forceinline__ void pack_sums(const Line* sums, u64 edges, const u64* sent, const u32* bin_rows,
                                          const u32* bin_parents, u32 n_local, u32 rank, u32 ranks, u32 peer, Tag tag,
                                          u32 entries, u64* messages) {
  u64* header = header_of(messages, peer, entries);
  const u64 start = sent[peer], size = sums[kTopDownEnds + peer].value - start;
  if (threadIdx.x == 0) {
    u64 found = sums[kTopDownEnds + rank].value, large = 0;
    for (u32 other = 0; other < ranks; ++other) {
      if (other == rank) continue;
      const u64 sending = sums[kTopDownEnds + other].value - sent[other];
      found += sending;
      large |= sending > entries;
    }
    write_header(header, tag, size, found, edges, large);
  }
  copy_entries(header, entries, (u64)peer * n_local + start, size, bin_rows, bin_parents);
}

}  // namespace dbfs

// pack_level: a block a peer. The same behind `top_down`. Without an expanded frontier the sum of the edges is of an
// earlier level.
extern "C" __global__ void dbfs_pack_level(const dbfs::Line* sums, const u64* sent, const u32* bin_rows,
                                           const u32* bin_parents, u32 n_local, u32 rank, u32 expanded, i64 number,
                                           i64 crossing, i64 run, u32 entries, u64* messages) {
  using namespace dbfs;
  if (blockIdx.x == rank) return;
  pack_sums(sums, expanded ? sums[kTopDownEdges].value : 0, sent, bin_rows, bin_parents, n_local, rank, gridDim.x,
            blockIdx.x, Tag{number, crossing, run}, entries, messages);
}

// small_level: `top_down` (search/cuda/kernels/phases/levels.cu) and `pack_level` in one launch of one block, for a frontier of at most one
// row a thread and few edges, or none. A thread takes an edge, and finds its row in the running sums of the degrees.
// Reads 20 bytes a row, 4 bytes and a bit an edge; writes 4 bytes of bitmap a discovery, 8 to 12 bytes (own) or 4 to 8
// (other ranks'), and the messages. `ahead` levels were queued before it that the host has not seen; at 0 the size is
// the host's.
extern "C" __global__ void dbfs_small_level(const i64* offsets, const u32* frontier, u32 size, const u32* columns,
                                            u32 n_local, u32 rank, u32 ranks, u32* visited, u32* bin_rows,
                                            u32* bin_parents, i32 distance, i32* distances, u32* predecessors,
                                            u32* discovered, dbfs::Line* sums, const u64* sent, i64 number,
                                            i64 crossing, i64 run, u32 entries, u64* messages, const u64* progress,
                                            u32 ahead) {
  using namespace dbfs;
  if (ahead) {
    if (progress[kProgressHalted]) {
      for (u32 peer = threadIdx.x; peer < ranks; peer += blockDim.x) {
        write_header(header_of(messages, peer, entries), Tag{number, crossing, run}, 0, 0, 0, 0);
      }
      return;
    }
    size = (u32)progress[kProgressSize];
  }
  __shared__ u32 ends[1024], warps[32];
  __shared__ i64 starts[1024];
  const u32 i = threadIdx.x, lane = i % 32, warp = i / 32;
  u32 degree = 0;
  if (i < size) {
    const i64 start = __ldg(&offsets[frontier[i]]);
    degree = (u32)(__ldg(&offsets[frontier[i] + 1]) - start);
    starts[i] = start;
  }
  u32 sum = degree;
  for (u32 step = 1; step < 32; step <<= 1) {
    const u32 other = __shfl_up_sync(0xffffffffu, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == 31) warps[warp] = sum;
  __syncthreads();
  for (u32 before = 0; before < warp; ++before) sum += warps[before];
  ends[i] = sum;
  __syncthreads();
  const u32 total = size ? ends[size - 1] : 0;
  for (u32 edge = i; edge < total; edge += blockDim.x) {
    u32 low = 0, high = size - 1;
    while (low < high) {
      const u32 middle = (low + high) / 2;
      if (ends[middle] > edge) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    const u32 before = low ? ends[low - 1] : 0, row = frontier[low];
    const u32 neighbour = columns[starts[low] + (edge - before)];
    if (!claim_unseen(visited, neighbour)) continue;
    const u32 owner = neighbour / n_local, found = neighbour - owner * n_local, parent = rank * n_local + row;
    const u64 at = reserve(&sums[kTopDownEnds + owner].value, __match_any_sync(__activemask(), owner));
    if (owner == rank) {
      distances[found] = distance;
      if (predecessors) predecessors[found] = parent;
      discovered[at] = found;
    } else {
      const u64 place = (u64)owner * n_local + at;
      bin_rows[place] = found;
      if (bin_parents) bin_parents[place] = parent;
    }
  }
  // The contraction takes the edges from here.
  if (i == 0) sums[kTopDownEdges].value = total;
  __syncthreads();
  for (u32 peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    pack_sums(sums, total, sent, bin_rows, bin_parents, n_local, rank, ranks, peer, Tag{number, crossing, run},
              entries, messages);
  }
}

// contract_messages: labels and queues the new rows that came with the headers, behind the rank's own discoveries, and
// writes the level's result for the host. One block. A header of another crossing is left alone. The own sum is left as
// it is if a larger bin follows, whose rows are queued behind; else it is cleared. Halts the queue behind the last level
// of a traversal, behind one with large bins, and before a frontier of more than `most` vertices over all ranks. Reads
// 128 bytes a peer, 4 (8) bytes and a bit a row; writes 8 (12) bytes a new row.
extern "C" __global__ void dbfs_contract_messages(const u64* messages, dbfs::Line* sums, u64* sent, u32 rank, u32 ranks,
                                                  u32 expanded, i64 number, i64 crossing, i64 run, u32 entries,
                                                  u32* visited, i32 distance, i32* distances, u32* predecessors,
                                                  u32* discovered, i64* result, u64* progress, u32 ahead, u64 most) {
  using namespace dbfs;
  if (ahead && progress[kProgressHalted]) {
    if (threadIdx.x == 0) result[kResultState] = kHalted;
    return;
  }
  u64* queued = &sums[kTopDownEnds + rank].value;
  const u64 own = *queued, edges = expanded ? sums[kTopDownEdges].value : 0;
  __syncthreads();
  u64 found = own, all_edges = edges, received = 0;
  i64 state = 0;
  bool follow = false;
  for (u32 peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    const u64* header = messages + (u64)peer * (kHeaderWords + entries);
    if (header[kHeaderNumber] != (u64)number || header[kHeaderCrossing] != (u64)crossing ||
        header[kHeaderRun] != (u64)run) {
      state |= kOtherCrossing;
      continue;
    }
    const u64 size = header[kHeaderSize], sending = sums[kTopDownEnds + peer].value - sent[peer];
    found += header[kHeaderVertices] + sending;
    all_edges += header[kHeaderEdges];
    received += size;
    if (sending > entries || header[kHeaderLarge]) state |= kLargeBins;
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
    result[kResultOwn] = own;
    result[kResultQueued] = *queued;
    result[kResultEdges] = edges;
    result[kResultFound] = found;
    result[kResultExpanded] = all_edges;
    result[kResultReceived] = received;
    result[kResultState] = state;
    progress[kProgressSize] = *queued;
    progress[kProgressHalted] = state || !found || found > most;
    if (!follow) *queued = 0;
  }
  for (u32 peer = threadIdx.x; peer < ranks; peer += blockDim.x) {
    if (peer == rank) continue;
    const u64 end = sums[kTopDownEnds + peer].value;
    result[kResultFirstEnd + peer] = end;
    result[kResultFirstEnd + ranks + peer] = end - sent[peer];
    result[kResultFirstEnd + 2 * ranks + peer] = messages[(u64)peer * (kHeaderWords + entries) + kHeaderSize];
    sent[peer] = end;
  }
}

// absorb: the slices of all ranks become the frontier's bitmap, and are visited. A thread takes a word: reads 8 bytes,
// writes 8.
extern "C" __global__ void dbfs_absorb(const u32* slices, u32 words, u32* frontier, u32* visited) {
  const u32 threads = gridDim.x * blockDim.x;
  for (u32 word = blockIdx.x * blockDim.x + threadIdx.x; word < words; word += threads) {
    const u32 bits = slices[word];
    frontier[word] = bits;
    if (bits) visited[word] |= bits;
  }
}

// measure: the sums and the slice of a queue, for `pack_found`; the host has cleared the slice. A thread takes a row:
// reads 4 + 16 bytes, sets a bit.
extern "C" __global__ void dbfs_measure(const i64* offsets, const u32* rows, u32 size, u32* bits, dbfs::Line* sums) {
  using namespace dbfs;
  u64 degrees = 0;
  const u32 threads = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
  for (u32 i = first; i < size; i += threads) {
    const u32 row = rows[i];
    degrees += __ldg(&offsets[row + 1]) - __ldg(&offsets[row]);
    set_bit(bits, row);
  }
  add_sum(&sums[kSearchEdges].value, degrees);
  if (first == 0) sums[kSearchVertices].value = size;
}

// pack_found: the headers behind `bottom_up` or `measure`, for the peers and, at `own`, for the host. One block. Clears
// the sums.
extern "C" __global__ void dbfs_pack_found(dbfs::Line* sums, u32 ranks, i64 number, i64 crossing, i64 run, u32 entries,
                                           u64* messages, u64* own) {
  using namespace dbfs;
  const u64 found = sums[kSearchVertices].value, degrees = sums[kSearchEdges].value, searched = sums[kSearchSearched].value;
  for (u32 peer = threadIdx.x; peer <= ranks; peer += blockDim.x) {
    u64* header = peer < ranks ? header_of(messages, peer, entries) : own;
    write_header(header, Tag{number, crossing, run}, 0, found, degrees, 0, searched);
  }
  __syncthreads();
  if (threadIdx.x < kSearchSums) sums[threadIdx.x].value = 0;
}
