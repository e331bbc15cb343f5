// The bottom-up kernel of search/cuda/kernels/phases/levels.cu on a CPU, with search/cuda/kernels/common/search.cuh.
#include "common.h"

namespace dbfs {

struct Frontier {
  const u32* rows;
  const i64 *starts, *ends;
  i64 size;
};

// Of `top_down`, which does not run here.
template <class Visit>
inline void visit_edges(Frontier, const u32*, Visit) {}

}  // namespace dbfs

#define __match_any_sync(mask, value) 1u
#include "search/cuda/kernels/phases/levels.cu"

extern "C" const char* bottom_up(unsigned blocks, unsigned long long seed, const i64* in_offsets, const u32* in_columns,
                                 const i64* out_offsets, u32 words, const u32* frontier, u32* visited, u32* found_bits,
                                 i32 distance, i32* distances, u32* predecessors, u32* discovered, Line* sums) {
  static std::string said;
  said = cuda_on_cpu::run(blocks, 64, seed, [=] {
    dbfs_bottom_up(in_offsets, in_columns, out_offsets, words, frontier, visited, found_bits, distance, distances,
                   predecessors, discovered, sums);
  });
  return said.c_str();
}
