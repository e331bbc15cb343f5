// The kernels of search/cuda/kernels/phases/messages.cu on a CPU.
#include "common.h"

#define __activemask() 1u
#define __match_any_sync(mask, value) 1u
#include "search/cuda/kernels/phases/messages.cu"

static const char* said(std::string answer) {
  static std::string kept;
  kept = answer;
  return kept.c_str();
}

extern "C" const char* pack(unsigned blocks, unsigned long long seed, const u64* headers, const u32* bin_rows,
                            const u32* bin_parents, u32 entries, u64* messages) {
  return said(cuda_on_cpu::run(blocks, 64, seed, [=] { dbfs_pack(headers, bin_rows, bin_parents, entries, messages); }));
}

extern "C" const char* pack_level(unsigned blocks, unsigned long long seed, const Line* sums, const u64* sent,
                                  const u32* bin_rows, const u32* bin_parents, u32 n_local, u32 rank, u32 expanded,
                                  i64 number, i64 crossing, i64 run, u32 entries, u64* messages) {
  return said(cuda_on_cpu::run(blocks, 64, seed, [=] {
    dbfs_pack_level(sums, sent, bin_rows, bin_parents, n_local, rank, expanded, number, crossing, run, entries,
                    messages);
  }));
}

extern "C" const char* small_level(unsigned blocks, unsigned long long seed, const i64* offsets, const u32* frontier,
                                   u32 size, const u32* columns, u32 n_local, u32 rank, u32 ranks, u32* visited,
                                   u32* bin_rows, u32* bin_parents, i32 distance, i32* distances, u32* predecessors,
                                   u32* discovered, Line* sums, const u64* sent, i64 number, i64 crossing, i64 run,
                                   u32 entries, u64* messages, const u64* progress, u32 ahead) {
  return said(cuda_on_cpu::run(blocks, 64, seed, [=] {
    dbfs_small_level(offsets, frontier, size, columns, n_local, rank, ranks, visited, bin_rows, bin_parents, distance,
                     distances, predecessors, discovered, sums, sent, number, crossing, run, entries, messages, progress,
                     ahead);
  }));
}

extern "C" const char* contract_messages(unsigned blocks, unsigned long long seed, const u64* messages, Line* sums, u64* sent,
                                         u32 rank, u32 ranks, u32 expanded, i64 number, i64 crossing, i64 run,
                                         u32 entries, u32* visited, i32 distance, i32* distances, u32* predecessors,
                                         u32* discovered, i64* result, u64* progress, u32 ahead, u64 most) {
  return said(cuda_on_cpu::run(blocks, 64, seed, [=] {
    dbfs_contract_messages(messages, sums, sent, rank, ranks, expanded, number, crossing, run, entries, visited,
                           distance, distances, predecessors, discovered, result, progress, ahead, most);
  }));
}

extern "C" const char* absorb(unsigned blocks, unsigned long long seed, const u32* slices, u32 words, u32* frontier,
                              u32* visited) {
  return said(cuda_on_cpu::run(blocks, 64, seed, [=] { dbfs_absorb(slices, words, frontier, visited); }));
}

extern "C" const char* measure(unsigned blocks, unsigned long long seed, const i64* offsets, const u32* rows, u32 size,
                               u32* bits, Line* sums) {
  return said(cuda_on_cpu::run(blocks, 64, seed, [=] { dbfs_measure(offsets, rows, size, bits, sums); }));
}

extern "C" const char* pack_found(unsigned blocks, unsigned long long seed, Line* sums, u32 ranks, i64 number,
                                  i64 crossing, i64 run, u32 entries, u64* messages, u64* own) {
  return said(cuda_on_cpu::run(blocks, 64, seed, [=] {
    dbfs_pack_found(sums, ranks, number, crossing, run, entries, messages, own);
  }));
}
