// Graph500's Kronecker edges, bit for bit those of the CPU (dbfs/edges/generate/kronecker.py).
//
// Edge i starts from the seed state skipped by 2^64 * i steps. A block makes kTile consecutive edges. A thread jumps to
// its first edge by one power of the transition for each bit set in the edge's number. It then jumps from edge to edge
// by kThreads, so that a warp's stores lie side by side. An edge costs 25 multiplications to jump and two a level to
// draw (54 in all at scale 24, with a quarter of a jump for the way to the first edge), and 16 bytes written.
#include "search/cuda/kernels/common/scalars.cuh"

namespace dbfs {

constexpr u32 kThreads = 256;
constexpr u32 kLogThreads = 8;
constexpr u32 kEdgesAThread = 32;
constexpr u32 kTile = kThreads * kEdgesAThread;

constexpr u32 kWords = 5;  // words of the generator's state
constexpr u32 kPrime = 0x7fffffffu;
constexpr u32 kRecent = 107374182;
constexpr u32 kOldest = 104480;
constexpr u32 kRedraw = kPrime % 10000;  // smaller values are drawn again, so that residues are equally likely
constexpr u32 kTargetOnly = 1900, kSourceOnly = 3800, kNeither = 9500;
constexpr u64 kSourceMultiplier = 0x4519840211493211ull;
constexpr u64 kTargetMultiplier = 0x3050852102C843A5ull;

struct State {
  u32 z[kWords];
};

struct Power {
  u32 a[kWords][kWords];
};

// Return a number congruent to x modulo the prime, below 2^31 + x / 2^31.
__device__ __forceinline__ u64 fold(u64 x) { return (x & kPrime) + (x >> 31); }

__device__ __forceinline__ u32 reduce(u64 folded) {
  const u32 x = (u32)folded;
  return x >= kPrime ? x - kPrime : x;
}

// The weighted sum is below 2^58, so one fold leaves less than twice the prime.
__device__ __forceinline__ u32 next(const State& s) {
  return reduce(fold((u64)kRecent * s.z[0] + (u64)kOldest * s.z[kWords - 1]));
}

__device__ __forceinline__ State jump(const Power& by, const State& s) {
  State to;
#pragma unroll
  for (u32 row = 0; row < kWords; ++row) {
    // Three products stay below 2^64; five would not.
    const u64 first = fold((u64)by.a[row][0] * s.z[0] + (u64)by.a[row][1] * s.z[1] + (u64)by.a[row][2] * s.z[2]);
    to.z[row] = reduce(fold(fold(first + (u64)by.a[row][3] * s.z[3] + (u64)by.a[row][4] * s.z[4])));
  }
  return to;
}

__device__ __forceinline__ u64 scramble(u64 id, u32 scale, u64 value0, u64 value1) {
  id = (id + value0 + value1) * (value0 | kSourceMultiplier);
  id = (__brevll(id) >> (64 - scale)) * (value1 | kTargetMultiplier);
  return __brevll(id) >> (64 - scale);
}

__device__ __forceinline__ void draw(State s, u32 scale, u64& source, u64& target) {
  source = target = 0;
  for (u32 level = 0; level < scale; ++level) {
    u32 value;
    do {
      value = next(s);
#pragma unroll
      for (u32 word = kWords - 1; word; --word) s.z[word] = s.z[word - 1];
      s.z[0] = value;
    } while (value < kRedraw);
    const u32 residue = value % 10000;
    const bool both = residue >= kNeither, source_only = residue >= kTargetOnly && residue < kSourceOnly;
    // While the ids are equal, an edge below the diagonal is flipped above it.
    const bool equal = source == target;
    source = source << 1 | (u64)(both || (source_only && !equal));
    target = target << 1 | (u64)(both || residue < kTargetOnly || (source_only && equal));
  }
}

}  // namespace dbfs

// Write sources[count] and targets[count] of the edges first .. first + count - 1. powers[i] is the transition over 2^i
// edges, for every bit of an edge's number; seed is the state of edge 0.
extern "C" __global__ void __launch_bounds__(dbfs::kThreads)
    dbfs_kronecker(const dbfs::Power* powers, dbfs::State seed, u64 first, i64 count, u32 scale, u64 value0, u64 value1,
                   i64* sources, i64* targets) {
  using namespace dbfs;
  i64 at = (i64)blockIdx.x * kTile + threadIdx.x;
  State state = seed;
  u64 number = first + at;
  for (u32 bit = 0; number >> bit; ++bit) {
    if (number >> bit & 1) state = jump(powers[bit], state);
  }
  const Power stride = powers[kLogThreads];
  for (u32 i = 0; i < kEdgesAThread && at < count; ++i, at += kThreads) {
    u64 source, target;
    draw(state, scale, source, target);
    sources[at] = (i64)scramble(source, scale, value0, value1);
    targets[at] = (i64)scramble(target, scale, value0, value1);
    state = jump(stride, state);
  }
}
