// The phases of a level of a batch (features/batches/levels.py): many sources at once, with a bit for each (Then et al., VLDB
// 2014). Vertex i has the 1 << log_width words from i << log_width on. That many neighbouring lanes take a vertex, a word
// each, so that a vertex costs one access of all its words. Bitmaps have a bit a vertex; the words of a vertex whose bit
// is clear are 0. Every array belongs to this rank, but for those of a peer that `take` reads.
#include "search/cuda/kernels/phases/edges.cuh"
#include "search/cuda/kernels/phases/reserve.cuh"

namespace dbfs {

// Sums of a level. `pull` has the first two, kLeft with both the rows left and their edges: see `leave`. From kCounts on
// there is one for each source: the rows that it has reached.
enum BatchSum : u32 { kLooked = 0, kLeft, kRows, kRowDegrees, kBits, kBitDegrees, kCounts };

constexpr u32 kTogether = 4;     // edges of a row that its lanes look at together, or one each if there are more lanes
constexpr u32 kPlanes = 8;       // bits of a lane's counts
constexpr u32 kMostWords = 16;   // words of a vertex
constexpr u32 kBitmapWords = 8;  // words of a bitmap that a warp takes at a time
constexpr u32 kMostWarps = 32;   // warps of a block
constexpr u32 kLeftEdges = 36;   // bits of kLeft for edges, which would take 256 GiB; a row is left for hundreds

// How the lanes of a warp share vertices.
struct Lanes {
  u32 log_width;
  __device__ __forceinline__ u32 word() const { return lane_id() & ((1u << log_width) - 1); }
  __device__ __forceinline__ u32 group() const { return lane_id() >> log_width; }
  __device__ __forceinline__ u32 groups() const { return kLanes >> log_width; }
  // The lanes of this one's vertex.
  __device__ __forceinline__ u32 mask() const { return (kAll >> (kLanes - (1u << log_width))) << (group() << log_width); }
  __device__ __forceinline__ u64 place(u64 vertex) const { return (vertex << log_width) + word(); }
};

// Call visit(w, bits) for each word of a bitmap with any set bit, all lanes of a warp together.
template <typename Visit>
__device__ __forceinline__ void visit_bitmap(const u32* bitmap, i64 words, Visit visit) {
  const i64 step = (i64)gridDim.x * (blockDim.x / kLanes) * kBitmapWords;
  for (i64 base = (i64)warp_in_grid() * kBitmapWords; base < words; base += step) {
    const u32 mine = lane_id() < kBitmapWords && base + lane_id() < words ? bitmap[base + lane_id()] : 0;
    for (u32 some = __ballot_sync(kAll, mine != 0); some; some &= some - 1) {
      const u32 place = __ffs(some) - 1;
      visit(base + place, __shfl_sync(kAll, mine, place));
    }
  }
}

// The same by rows: visit(row, on) for the rows of kBitmapWords words whose bits are set, as many at a time as the warp
// takes, then end(w, bits) where the first lanes have a word each. `on` is false for the lanes that are left without a
// row. The rows of all these words follow one another, since a sparse bitmap has a row or two in a word, and a row waits
// for memory several times.
template <typename Visit, typename End>
__device__ __forceinline__ void visit_bits(const u32* bitmap, i64 words, Lanes lanes, Visit visit, End end) {
  __shared__ u32 of_block[kMostWarps * kBitmapWords];
  u32* const of_warp = of_block + threadIdx.x / kLanes * kBitmapWords;
  const i64 step = (i64)gridDim.x * (blockDim.x / kLanes) * kBitmapWords;
  for (i64 base = (i64)warp_in_grid() * kBitmapWords; base < words; base += step) {
    const bool has_word = lane_id() < kBitmapWords && base + lane_id() < words;
    const u32 mine = has_word ? bitmap[base + lane_id()] : 0;
    if (!__any_sync(kAll, mine != 0)) continue;
    if (lane_id() < kBitmapWords) of_warp[lane_id()] = mine;
    __syncwarp();
    i32 rows = 0;
    for (u32 w = 0; w < kBitmapWords; ++w) rows += __popc(of_warp[w]);
    u32 w = 0, bits = of_warp[0];
    const auto skip = [&](u32 count) {
      while (w < kBitmapWords && count >= (u32)__popc(bits)) {
        count -= __popc(bits);
        bits = ++w < kBitmapWords ? of_warp[w] : 0;
      }
      for (; count; --count) bits &= bits - 1;
    };
    skip(lanes.group());
    for (; rows > 0; rows -= lanes.groups()) {
      visit((base + w) * kLanes + (bits ? __ffs(bits) - 1 : 0), bits != 0);
      skip(lanes.groups());
    }
    __syncwarp();
    end(base + lane_id(), mine);
  }
}

// Add words to a vertex, without those that it has already, and mark the vertex.
__device__ __forceinline__ void add_words(u64 bits, u64 place, u32 vertex, u64* found, u32* marked) {
  if (bits) bits &= ~load_relaxed(&found[place]);
  if (!bits) return;
  atomicOr(&found[place], bits);
  if (!has_bit(marked, vertex)) set_bit(marked, vertex);
}

// Rows that `pull` leaves to `pull_rest`: for each, the place of its first edge, and the end of its edges among all rows'.
struct Left {
  u32* rows;
  i64 *starts, *ends;
  u64* sums;
  __device__ __forceinline__ i64 size() const { return sums[kLeft] >> kLeftEdges; }
  __device__ __forceinline__ i64 edges() const { return sums[kLeft] & ((1ull << kLeftEdges) - 1); }
  // One addition gives the row its place, and the edges of all rows before.
  __device__ __forceinline__ void leave(u32 row, i64 start, i64 size) const {
    const u64 before = atomicAdd(&sums[kLeft], (1ull << kLeftEdges) + size), place = before >> kLeftEdges;
    rows[place] = row;
    starts[place] = start;
    ends[place] = (before & ((1ull << kLeftEdges) - 1)) + size;
  }
};

template <u32 kLogWidth>
__device__ __forceinline__ void pull(const i64* offsets, const u32* columns, u32 first_id, u32 n_local,
                                     const u64* sources, const u32* live, const u64* front, const u64* seen, u64* found,
                                     u32* marked, i64 most, Left left) {
  constexpr u32 kWidth = 1u << kLogWidth, kStep = kWidth < kTogether ? kTogether : kWidth, kOwn = kStep / kWidth;
  const Lanes lanes{kLogWidth};
  const u64 wanted = sources[lanes.word()];
  const u32 step = gridDim.x * (blockDim.x / kLanes) * lanes.groups();
  u64 inspected = 0;
  for (u32 first = warp_in_grid() * lanes.groups(); first < n_local; first += step) {
    const u32 row = first + lanes.group();
    i64 at = 0, end = 0;
    u64 lacking = 0, mine = 0;
    if (row < n_local) {
      at = __ldg(&offsets[row]);
      end = __ldg(&offsets[row + 1]);
      // At once, though rows without edges lack nothing that they could get.
      lacking = wanted & ~__ldg(&seen[lanes.place(row)]);
    }
    const i64 begin = at, alone = at + most < end ? at + most : end;
    if (begin == end) lacking = 0;
    bool open = __ballot_sync(kAll, lacking != 0) & lanes.mask();
    while (__any_sync(kAll, open && at < alone)) {
      // Each lane looks up some of the neighbours, and then all lanes look at all of these.
      u32 ids[kOwn];
#pragma unroll
      for (u32 i = 0; i < kOwn; ++i) {
        const i64 place = at + lanes.word() + i * kWidth;
        ids[i] = open && place < alone ? __ldg(&columns[place]) : kNoVertex;
      }
#pragma unroll
      for (u32 i = 0; i < kOwn; ++i) {
        if (live && ids[i] != kNoVertex && !has_bit(live, ids[i])) ids[i] = kNoVertex;
      }
      u64 bits = 0;
#pragma unroll
      for (u32 j = 0; j < kStep; ++j) {
        const u32 id = __shfl_sync(kAll, ids[j / kWidth], (lane_id() & ~(kWidth - 1)) + j % kWidth);
        bits |= id != kNoVertex ? __ldg(&front[lanes.place(id)]) : 0;
      }
      mine |= bits & lacking;
      lacking &= ~mine;
      if (open) at = at + kStep < alone ? at + kStep : alone;
      open = __ballot_sync(kAll, lacking != 0) & lanes.mask();
    }
    if (mine) found[lanes.place(first_id + row)] = mine;
    const bool any = __ballot_sync(kAll, mine != 0) & lanes.mask(), first_lane = lanes.word() == 0;
    if (any && first_lane) set_bit(marked, first_id + row);
    if (open && at < end && first_lane) left.leave(row, at, end - at);
    if (first_lane) inspected += open ? end - begin : at - begin;
  }
  add_sum(&left.sums[kLooked], inspected);
}

}  // namespace dbfs

// push: adds the words of the frontier's rows to those of their neighbours, seen or not: a look at `seen` would cost as
// much as one at `found`, and `settle` drops what is seen. Reads 4 bytes and the words of two vertices an edge, and writes
// those of one where they are new.
extern "C" __global__ void dbfs_batch_push(const u32* rows, const i64* starts, const i64* ends, i64 size,
                                           const u32* columns, u32 first_id, u32 log_width, const u64* front,
                                           u64* found, u32* marked) {
  using namespace dbfs;
  const Lanes lanes{log_width};
  visit_edges({rows, starts, ends, size}, columns, [&](bool on, i64, u32 row, u32 neighbour) {
    const u32 edges = __ballot_sync(kAll, on);
    for (u32 first = 0; first < kLanes; first += lanes.groups()) {
      const u32 lane = first + lanes.group();
      const u32 from = __shfl_sync(kAll, row, lane), to = __shfl_sync(kAll, neighbour, lane);
      if (!has_bit(edges, lane)) continue;
      add_words(__ldg(&front[lanes.place(first_id + from)]), lanes.place(to), to, found, marked);
    }
  });
}

// push_rows: the same for rows of few edges, which the lanes of a row visit one after another. A row's neighbours in a
// deep graph have seen most bits, and are not marked. Reads the words of three vertices an edge.
extern "C" __global__ void dbfs_batch_push_rows(const u32* rows, i64 size, const i64* offsets, const u32* columns,
                                                u32 first_id, u32 n_local, u32 log_width, const u64* front,
                                                const u64* seen, u64* found, u32* marked) {
  using namespace dbfs;
  const Lanes lanes{log_width};
  const i64 step = (i64)gridDim.x * (blockDim.x >> log_width);
  for (i64 i = (i64)blockIdx.x * (blockDim.x >> log_width) + (threadIdx.x >> log_width); i < size; i += step) {
    const u32 row = __ldg(&rows[i]);
    const i64 end = __ldg(&offsets[row + 1]);
    const u64 bits = __ldg(&front[lanes.place(first_id + row)]);
    for (i64 k = __ldg(&offsets[row]); bits && k < end; k += kTogether) {
      u32 ids[kTogether];
      u64 rest[kTogether];
#pragma unroll
      for (u32 j = 0; j < kTogether; ++j) ids[j] = k + j < end ? __ldg(&columns[k + j]) : kNoVertex;
#pragma unroll
      for (u32 j = 0; j < kTogether; ++j) {
        rest[j] = ids[j] == kNoVertex ? 0 : bits;
        if (rest[j] && ids[j] - first_id < n_local) rest[j] &= ~__ldg(&seen[lanes.place(ids[j] - first_id)]);
      }
#pragma unroll
      for (u32 j = 0; j < kTogether; ++j) add_words(rest[j], lanes.place(ids[j]), ids[j], found, marked);
    }
  }
}

// pull_rest: rows that `pull` has left take what they lack from their remaining in-neighbours. A warp takes kWarpEdges of
// all these edges at a time, and of a row those until it lacks nothing. Reads as `pull`.
extern "C" __global__ void dbfs_batch_pull_rest(u32* rows, i64* starts, i64* ends, u64* sums, const u32* columns,
                                                u32 first_id, u32 log_width, const u64* sources, const u64* front,
                                                const u64* seen, u64* found, u32* marked) {
  using namespace dbfs;
  const Lanes lanes{log_width};
  const u64 wanted = sources[lanes.word()];
  const Left left{rows, starts, ends, sums};
  const i64 size = left.size(), total = left.edges(), warps = (i64)gridDim.x * (blockDim.x / kLanes);
  for (i64 first = warp_in_grid() * kWarpEdges; first < total; first += warps * kWarpEdges) {
    const i64 past = first + kWarpEdges < total ? first + kWarpEdges : total;
    i64 of_row = search_together(ends, first, 0, size - 1);
    for (i64 edge = first; edge < past; ++of_row) {
      const i64 row_end = __ldg(&ends[of_row]), before = of_row ? __ldg(&ends[of_row - 1]) : 0;
      const i64 stop = row_end < past ? row_end : past;
      const u32* list = columns + __ldg(&starts[of_row]) - before;
      const u32 row = __ldg(&rows[of_row]);
      const u64 place = lanes.place(first_id + row);
      u64 lacking = wanted & ~__ldg(&seen[lanes.place(row)]) & ~load_relaxed(&found[place]), mine = 0;
      for (; edge < stop && __any_sync(kAll, lacking != 0); edge += kLanes) {
        const u32 own = edge + lane_id() < stop ? __ldg(&list[edge + lane_id()]) : kNoVertex;
        u64 bits = 0;
        for (u32 of_warp = 0; of_warp < kLanes; of_warp += lanes.groups()) {
          const u32 id = __shfl_sync(kAll, own, of_warp + lanes.group());
          if (id != kNoVertex) bits |= __ldg(&front[lanes.place(id)]);
        }
        for (u32 step = 1u << log_width; step < kLanes; step <<= 1) bits |= __shfl_xor_sync(kAll, bits, step);
        mine |= bits & lacking;
        lacking &= ~bits;
      }
      edge = stop;
      if (lanes.group() == 0) add_words(mine, place, first_id + row, found, marked);
    }
  }
}

// pull: each row takes what it lacks of some sources' bits, the words `sources`, from its first `most` in-neighbours,
// until it has all of these bits. Rows that lack some then, and have more in-neighbours, are left for `pull_rest`. `live`
// is null if most vertices are in the frontier. Reads 16 bytes of offsets and the words of a row; 4 bytes, a bit and the
// words of a vertex an edge.
#define DBFS_PULL(width, log_width)                                                                                   \
  extern "C" __global__ void dbfs_batch_pull_##width(                                                                 \
      const i64* offsets, const u32* columns, u32 first_id, u32 n_local, const u64* sources, const u32* live,         \
      const u64* front, const u64* seen, u64* found, u32* marked, i64 most, u32* rows, i64* starts, i64* ends,        \
      u64* sums) {                                                                                                    \
    dbfs::pull<log_width>(offsets, columns, first_id, n_local, sources, live, front, seen, found, marked, most,       \
                          {rows, starts, ends, sums});                                                                \
  }
DBFS_PULL(1, 0)
DBFS_PULL(2, 1)
DBFS_PULL(4, 2)
DBFS_PULL(8, 3)
DBFS_PULL(16, 4)

// choose: lists the frontier's rows that have a bit of some sources, and adds up their degrees. `sources` has the words
// of one vertex. Reads 4 bytes and the words of a row.
extern "C" __global__ void dbfs_batch_choose(const u32* rows, i64 size, const i64* offsets, u32 first_id, u32 log_width,
                                             const u64* front, const u64* sources, u32* chosen, u64* sums) {
  using namespace dbfs;
  const Lanes lanes{log_width};
  const u64 wanted = sources[lanes.word()];
  const i64 step = (i64)gridDim.x * (blockDim.x / kLanes) * lanes.groups();
  u64 degrees = 0;
  for (i64 first = (i64)warp_in_grid() * lanes.groups(); first < size; first += step) {
    const i64 i = first + lanes.group();
    const u32 row = i < size ? __ldg(&rows[i]) : 0;
    const u64 some = i < size ? __ldg(&front[lanes.place(first_id + row)]) & wanted : 0;
    const bool any = __ballot_sync(kAll, some != 0) & lanes.mask();
    const u32 listed = __ballot_sync(kAll, any && lanes.word() == 0);
    if (has_bit(listed, lane_id())) {
      chosen[reserve(&sums[kRows], listed)] = row;
      degrees += __ldg(&offsets[row + 1]) - __ldg(&offsets[row]);
    }
  }
  add_sum(&sums[kRowDegrees], degrees);
}

// settle: reduces the words that were found for the rank's rows to the new bits, which become seen; unmarks rows without
// any, and queues the others. The rows of all sources are counted at once: plane b has bit b of each source's count, and
// a word is added to the planes as to a binary number. Reads the words of two vertices a row marked, and writes them.
extern "C" __global__ void dbfs_batch_settle(const i64* offsets, i64 words, u32 log_width, u32* marked, u64* seen,
                                             u64* found, u32* queue, u64* sums) {
  using namespace dbfs;
  __shared__ u32 counts[kMostWords * 64], of_block[kMostWarps * kBitmapWords];
  const Lanes lanes{log_width};
  // Marks of rows without new bits.
  u32* const dropped = of_block + threadIdx.x / kLanes * kBitmapWords;
  if (lane_id() < kBitmapWords) dropped[lane_id()] = 0;
  const u32 sources = 64u << log_width;
  for (u32 i = threadIdx.x; i < sources; i += blockDim.x) counts[i] = 0;
  __syncthreads();
  u64 planes[kPlanes] = {}, degrees = 0, bits_found = 0, bit_degrees = 0;
  u32 added = 0;
  const auto flush = [&] {
    u64 any = 0;
    for (u32 b = 0; b < kPlanes; ++b) any |= planes[b];
    // The lanes of one word begin at different sources, or all would add to one count at once.
    const u32 first = lanes.group() * 8 & 63;
    for (any = any >> first | any << (-first & 63); any; any &= any - 1) {
      const u32 place = (__ffsll(any) - 1 + first) & 63;
      u32 count = 0;
      for (u32 b = 0; b < kPlanes; ++b) count |= (u32)(planes[b] >> place & 1) << b;
      atomicAdd(&counts[lanes.word() * 64 + place], count);
    }
    for (u32 b = 0; b < kPlanes; ++b) planes[b] = 0;
    added = 0;
  };
  visit_bits(
      marked, words, lanes,
      [&](i64 row, bool on) {
        u64 fresh = 0;
        if (on) {
          const u64 at = lanes.place(row), all = found[at];
          const u64 known = seen[at];
          fresh = all & ~known;
          if (fresh != all) found[at] = fresh;
          if (fresh) seen[at] = known | fresh;
        }
        if (__ballot_sync(kAll, fresh != 0) & lanes.mask()) {
          const u64 degree = __ldg(&offsets[row + 1]) - __ldg(&offsets[row]), bits = __popcll(fresh);
          bits_found += bits;
          bit_degrees += bits * degree;
          if (lanes.word() == 0) degrees += degree;
        } else if (on && lanes.word() == 0) {
          atomicOr(&dropped[row / kLanes % kBitmapWords], bit_of((u32)row));
        }
        u64 carry = fresh;
#pragma unroll
        for (u32 b = 0; b < kPlanes; ++b) {
          const u64 both = planes[b] & carry;
          planes[b] ^= carry;
          carry = both;
        }
        if (++added == (1u << kPlanes) - 1) flush();
      },
      [&](i64 word, u32 bits) {
        u32 kept = 0;
        if (lane_id() < kBitmapWords) {
          kept = bits & ~dropped[lane_id()];
          dropped[lane_id()] = 0;
          if (kept != bits) marked[word] = kept;
        }
        u32 rows = __popc(kept);
        for (u32 step = 1; step < kBitmapWords; step <<= 1) {
          const u32 before = __shfl_up_sync(kAll, rows, step);
          rows += lane_id() >= step ? before : 0;
        }
        const u32 last = kBitmapWords - 1, total = __shfl_sync(kAll, rows, last);
        u64 at = lane_id() == 0 && total ? atomicAdd(&sums[kRows], (u64)total) : 0;
        at = __shfl_sync(kAll, at, 0);
        for (u32 w = 0; w < kBitmapWords; ++w) {
          const u32 some = __shfl_sync(kAll, kept, w), first = __shfl_sync(kAll, rows, w) - __popc(some);
          const u64 row = (u64)(word - lane_id() + w) * kLanes + lane_id();
          if (has_bit(some, lane_id())) queue[at + first + __popc(some & lanes_below())] = (u32)row;
        }
        __syncwarp();
      });
  flush();
  add_sum(&sums[kRowDegrees], degrees);
  add_sum(&sums[kBits], bits_found);
  add_sum(&sums[kBitDegrees], bit_degrees);
  __syncthreads();
  for (u32 i = threadIdx.x; i < sources; i += blockDim.x) {
    if (counts[i]) atomicAdd(&sums[kCounts + i], (u64)counts[i]);
  }
}

// note: writes the distance of the rows that `settle` has left marked: for each new bit into a table [rows, sources] of
// numbers of `item` bytes (0 for no table), and for each row without a nearest source that source and its distance. Each
// new bit adds `terms` to the row's sums, of which there are `of_row`. A warp takes a row, a lane eight sources. Reads and
// writes 8 bytes for eight sources of a byte each, and 8 bytes a sum.
extern "C" __global__ void dbfs_batch_note(u32 distance, i64 words, u32 log_width, const u32* marked, const u64* found,
                                           u32 sources, u8* distances, u32 item, i32* nearest, const double* terms,
                                           double* sums, u32 of_row) {
  using namespace dbfs;
  visit_bitmap(marked, words, [&](i64 w, u32 marks) {
    for (u32 rows = marks; rows; rows &= rows - 1) {
      const i64 row = w * kLanes + __ffs(rows) - 1;
      const u8* bytes = (const u8*)&found[row << log_width];
      bool lacks = nearest && nearest[2 * row] < 0;
      u32 reached = 0;
      for (u32 first = 0; first * 8 < sources; first += kLanes) {
        const u32 at = first + lane_id(), bits = at * 8 < sources ? bytes[at] : 0;
        const u32 some = __ballot_sync(kAll, bits != 0);
        if (lacks && some && lane_id() == (u32)__ffs(some) - 1) {
          nearest[2 * row] = (i32)distance;
          nearest[2 * row + 1] = (i32)(at * 8 + __ffs(bits) - 1);
        }
        lacks = lacks && !some;
        reached += __popc(bits);
        if (!item || !bits) continue;
        u8* place = distances + ((u64)row * sources + at * 8) * item;
        if (item == 1 && sources % 8 == 0) {
          // Each bit at the place of its byte, and then in all bits of the byte.
          const u64 spread = bits * 0x0101010101010101ull & 0x8040201008040201ull;
          const u64 mask = ((spread + 0x7f7f7f7f7f7f7f7full | spread) & 0x8080808080808080ull) / 128 * 255;
          *(u64*)place = (*(u64*)place & ~mask) | (distance * 0x0101010101010101ull & mask);
          continue;
        }
        for (u32 rest = bits; rest; rest &= rest - 1) {
          u8* one = place + (__ffs(rest) - 1) * item;
          for (u32 byte = 0; byte < item; ++byte) one[byte] = (u8)(distance >> 8 * byte);
        }
      }
      if (of_row) {
        const u32 all = warp_sum(reached);
        if (lane_id() < of_row) sums[row * of_row + lane_id()] += all * terms[lane_id()];
      }
      __syncwarp();
    }
  });
}

// clear: clears a bitmap and the words of its vertices.
extern "C" __global__ void dbfs_batch_clear(i64 words, u32 log_width, u32* live, u64* front) {
  using namespace dbfs;
  const Lanes lanes{log_width};
  visit_bits(
      live, words, lanes,
      [&](i64 vertex, bool on) {
        if (on) front[lanes.place(vertex)] = 0;
      },
      [&](i64 word, u32 bits) {
        if (bits) live[word] = 0;
      });
}

// take: adds the words of a peer's vertices to those of the same vertices here. Reads them over NVLink.
extern "C" __global__ void dbfs_batch_take(i64 words, u32 log_width, const u32* peer_bits, const u64* peer_words,
                                           u32* bits, u64* to) {
  using namespace dbfs;
  const Lanes lanes{log_width};
  visit_bits(
      peer_bits, words, lanes,
      [&](i64 vertex, bool on) {
        if (on) to[lanes.place(vertex)] |= peer_words[lanes.place(vertex)];
      },
      [&](i64 word, u32 taken) {
        if (taken) bits[word] |= taken;
      });
}
