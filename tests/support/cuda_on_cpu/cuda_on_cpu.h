// CUDA's words for kernels, on a CPU: a test compiles a .cu file with a C++ compiler and runs its grid in one thread.
//
// Each thread of the grid is a fiber with a stack of its own. A fiber runs until it waits for its warp or its block, or
// until an access that other threads may see (atomics, __ldcg), where it sometimes lets another go first. Which fiber
// runs next is drawn from a seed, so that a race shows in some order, and the same seed shows it again. Lanes of a warp
// do not run in step: code that needs them to must say so (__syncwarp). All blocks of a grid are under way together, as
// a barrier of the whole grid needs; shared memory is copied out and in when another block goes on.
//
// Barriers are strict: a thread that ends, or waits elsewhere, leaves the others waiting, and the run ends with an error.
// Not there: streams, clocks, textures, memory orders weaker than sequential consistency.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("cuda_shared")))

extern "C" {
extern char __start_cuda_shared[] __attribute__((weak));
extern char __stop_cuda_shared[] __attribute__((weak));
}

namespace cuda_on_cpu {

using Word = unsigned long long;

struct Dim {
  unsigned x = 1, y = 1, z = 1;
};

struct Fiber;

// A place where the threads of a warp or a block meet. Two sets of values take turns: the next meeting may fill one
// while slow threads still read the other.
struct Meeting {
  unsigned expected = 0, arrived = 0;
  Word generation = 0;
  std::vector<Word> values[2];
  std::vector<Fiber*> waiting;
};

struct Block {
  unsigned index = 0;
  Meeting all, first;
  std::vector<Meeting> warps;
  std::vector<Fiber*> runnable;
  std::vector<char> shared;
};

struct Fiber {
  Dim thread;
  Block* block = nullptr;
  Meeting* warp = nullptr;
  ucontext_t start;
  jmp_buf place;
  bool started = false, ended = false;
  std::unique_ptr<char[]> stack;
};

constexpr size_t kStack = 64 * 1024;

inline Fiber* current = nullptr;
inline Dim grid, block_shape;
inline jmp_buf scheduler;
inline Word random_state = 1;
inline unsigned accesses_a_turn = 8;  // after one of so many accesses, another fiber goes first
inline std::function<void()>* body = nullptr;

inline unsigned draw(unsigned below) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return unsigned((random_state >> 11) % below);
}

// Leave the fiber; the scheduler comes back to it when it is drawn again.
__attribute__((noinline)) inline void leave() {
  if (_setjmp(current->place) == 0) _longjmp(scheduler, 1);
}

inline void sometimes_let_others_go_first() {
  if (draw(accesses_a_turn) == 0) {
    current->block->runnable.push_back(current);
    leave();
  }
}

// Wait until all threads of the meeting have come, and return what each brought.
inline const Word* meet(Meeting& meeting, unsigned place, Word value) {
  std::vector<Word>& values = meeting.values[meeting.generation & 1];
  values[place] = value;
  if (++meeting.arrived < meeting.expected) {
    meeting.waiting.push_back(current);
    leave();
  } else {
    meeting.arrived = 0;
    ++meeting.generation;
    for (Fiber* fiber : meeting.waiting) fiber->block->runnable.push_back(fiber);
    meeting.waiting.clear();
  }
  return values.data();
}

inline const Word* meet_warp(Word value) { return meet(*current->warp, current->thread.x % 32, value); }
inline const Word* meet_block(Word value) { return meet(current->block->all, current->thread.x, value); }
// The first threads of the block meet, always as many of them at once.
inline void meet_first(unsigned threads) {
  current->block->first.expected = threads;
  meet(current->block->first, current->thread.x, 0);
}

inline void run_fiber() {
  (*body)();
  current->ended = true;
  _longjmp(scheduler, 1);
}

// Run a grid; returns an empty string, or what went wrong.
inline std::string run(unsigned blocks, unsigned threads, Word seed, std::function<void()> kernel) {
  if (threads == 0 || threads % 32) return "a block must have whole warps of 32 threads";
  grid.x = blocks;
  block_shape.x = threads;
  random_state = seed * 0x9e3779b97f4a7c15ull + 1;
  body = &kernel;
  const size_t shared_bytes = __start_cuda_shared ? __stop_cuda_shared - __start_cuda_shared : 0;
  std::vector<Block> all(blocks);
  std::vector<Fiber> fibers(size_t(blocks) * threads);
  for (unsigned b = 0; b < blocks; ++b) {
    Block& block = all[b];
    block.index = b;
    block.all.expected = threads;
    block.warps.resize(threads / 32);
    // Shared memory starts with noise, as on a GPU.
    block.shared.resize(shared_bytes);
    for (char& byte : block.shared) byte = char(draw(256));
    for (int turn = 0; turn < 2; ++turn) {
      block.all.values[turn].resize(threads);
      block.first.values[turn].resize(threads);
      for (Meeting& warp : block.warps) warp.values[turn].resize(32);
    }
    for (Meeting& warp : block.warps) warp.expected = 32;
    for (unsigned t = 0; t < threads; ++t) {
      Fiber& fiber = fibers[size_t(b) * threads + t];
      fiber.thread.x = t;
      fiber.block = &block;
      fiber.warp = &block.warps[t / 32];
      block.runnable.push_back(&fiber);
    }
  }
  std::vector<Block*> open;
  for (Block& block : all) open.push_back(&block);
  volatile size_t ended = 0;
  Block* volatile here = nullptr;
  while (ended < fibers.size()) {
    Block* next = here;
    if (!next || next->runnable.empty() || draw(16) == 0) {
      std::vector<Block*> ready;
      for (Block* block : open) {
        if (!block->runnable.empty()) ready.push_back(block);
      }
      if (ready.empty()) return "deadlock: threads wait at a barrier that others do not reach";
      next = ready[draw(ready.size())];
      if (next != here) {
        if (here) memcpy(here->shared.data(), __start_cuda_shared, shared_bytes);
        memcpy(__start_cuda_shared, next->shared.data(), shared_bytes);
        here = next;
      }
    }
    const unsigned chosen = draw(next->runnable.size());
    current = next->runnable[chosen];
    next->runnable[chosen] = next->runnable.back();
    next->runnable.pop_back();
    if (_setjmp(scheduler) == 0) {
      if (current->started) _longjmp(current->place, 1);
      current->started = true;
      current->stack.reset(new char[kStack]);
      getcontext(&current->start);
      current->start.uc_stack.ss_sp = current->stack.get();
      current->start.uc_stack.ss_size = kStack;
      current->start.uc_link = nullptr;
      makecontext(&current->start, run_fiber, 0);
      setcontext(&current->start);
    }
    if (current->ended) {
      current->stack.reset();
      ended = ended + 1;
    }
  }
  return "";
}

// A grid that a kernel launched.
struct Launched {
  unsigned blocks;
  std::function<void()> kernel;
};

enum Stream { kFireAndForget, kTail };
inline std::vector<Launched> children, tails;
inline unsigned most_launches = 0;  // launches that a run of a grid takes, its children's included
inline unsigned launches = 0;
inline bool refused = false;

inline void launch(Stream stream, unsigned blocks, std::function<void()> kernel) {
  sometimes_let_others_go_first();
  refused = launches == most_launches;
  if (refused) return;
  ++launches;
  (stream == kTail ? tails : children).push_back({blocks, kernel});
}

// Run a grid and all that it launches: those in the stream for tails after all others.
inline std::string run_with_children(unsigned blocks, unsigned threads, Word seed, std::function<void()> kernel) {
  launches = 0;
  children.assign({{blocks, kernel}});
  tails.clear();
  for (Word at = 0; !children.empty() || !tails.empty(); ++at) {
    if (children.empty()) children.swap(tails);
    const unsigned chosen = draw(children.size());
    const Launched next = children[chosen];
    children.erase(children.begin() + chosen);
    const std::string answer = run(next.blocks, threads, seed + (at << 40), next.kernel);
    if (!answer.empty()) return answer;
  }
  return "";
}

template <class T>
inline Word word_of(T value) {
  Word word = 0;
  memcpy(&word, &value, sizeof value);
  return word;
}

template <class T>
inline T value_of(Word word) {
  T value;
  memcpy(&value, &word, sizeof value);
  return value;
}

}  // namespace cuda_on_cpu

#define threadIdx (cuda_on_cpu::current->thread)
#define blockIdx (cuda_on_cpu::Dim{cuda_on_cpu::current->block->index, 0, 0})
#define gridDim (cuda_on_cpu::grid)
#define blockDim (cuda_on_cpu::block_shape)

// Launches by kernels run after the grid that made them, in a drawn order. The values are CUDA's words for two streams.
#define cudaStreamFireAndForget cuda_on_cpu::kFireAndForget
#define cudaStreamTailLaunch cuda_on_cpu::kTail
#define DBFS_LAUNCH(kernel, blocks, stream, ...) \
  cuda_on_cpu::launch(stream, blocks, [=] { kernel(__VA_ARGS__); })
constexpr int cudaSuccess = 0;
inline int cudaGetLastError() {
  const bool was = cuda_on_cpu::refused;
  cuda_on_cpu::refused = false;
  return was;
}

inline void __syncthreads() { cuda_on_cpu::meet_block(0); }

inline int __syncthreads_or(int predicate) {
  const cuda_on_cpu::Word* values = cuda_on_cpu::meet_block(predicate != 0);
  for (unsigned t = 0; t < cuda_on_cpu::block_shape.x; ++t) {
    if (values[t]) return 1;
  }
  return 0;
}

// Only whole warps meet: the masks of all calls are full.
inline void __syncwarp() { cuda_on_cpu::meet_warp(0); }

inline unsigned __ballot_sync(unsigned, int predicate) {
  const cuda_on_cpu::Word* values = cuda_on_cpu::meet_warp(predicate != 0);
  unsigned ballot = 0;
  for (unsigned lane = 0; lane < 32; ++lane) ballot |= unsigned(values[lane]) << lane;
  return ballot;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) == 0xffffffffu; }

template <class T>
inline T __shfl_sync(unsigned, T value, int source) {
  return cuda_on_cpu::value_of<T>(cuda_on_cpu::meet_warp(cuda_on_cpu::word_of(value))[source & 31]);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned step) {
  const unsigned lane = threadIdx.x % 32;
  return __shfl_sync(mask, value, lane >= step ? lane - step : lane);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned step) {
  const unsigned lane = threadIdx.x % 32;
  return __shfl_sync(mask, value, lane + step < 32 ? lane + step : lane);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, unsigned bits) {
  return __shfl_sync(mask, value, (threadIdx.x % 32) ^ bits);
}
template <class T>
inline unsigned __match_any_sync(unsigned, T value) {
  const cuda_on_cpu::Word word = cuda_on_cpu::word_of(value);
  const cuda_on_cpu::Word* values = cuda_on_cpu::meet_warp(word);
  unsigned same = 0;
  for (unsigned lane = 0; lane < 32; ++lane) same |= unsigned(values[lane] == word) << lane;
  return same;
}

inline int __popc(unsigned word) { return __builtin_popcount(word); }
inline int __ffs(unsigned word) { return __builtin_ffs(int(word)); }
inline int __clz(unsigned word) { return word ? __builtin_clz(word) : 32; }

template <class T>
inline T __ldcg(const T* place) {
  const T value = *(const volatile T*)place;
  cuda_on_cpu::sometimes_let_others_go_first();
  return value;
}
template <class T>
inline T __ldg(const T* place) {
  return *place;
}

// No other fiber runs within an update, so plain code is atomic.
template <class T, class U>
inline T __update(T* place, U update) {
  cuda_on_cpu::sometimes_let_others_go_first();
  const T before = *place;
  *place = update(before);
  return before;
}
template <class T>
inline T atomicAdd(T* place, T value) {
  return __update(place, [=](T before) { return T(before + value); });
}
template <class T>
inline T atomicOr(T* place, T value) {
  return __update(place, [=](T before) { return T(before | value); });
}
template <class T>
inline T atomicAnd(T* place, T value) {
  return __update(place, [=](T before) { return before & value; });
}
template <class T>
inline T atomicMax(T* place, T value) {
  return __update(place, [=](T before) { return before < value ? value : before; });
}
template <class T>
inline T atomicMin(T* place, T value) {
  return __update(place, [=](T before) { return value < before ? value : before; });
}
template <class T>
inline T atomicExch(T* place, T value) {
  return __update(place, [=](T) { return value; });
}
template <class T>
inline T atomicCAS(T* place, T expected, T value) {
  return __update(place, [=](T before) { return before == expected ? value : before; });
}
inline void __threadfence() {}
