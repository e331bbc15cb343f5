// The kernels of serving/reads/kernels/by_vertex.cu on a CPU.
#include "cuda_on_cpu.h"
#include "serving/reads/kernels/by_vertex.cu"

#define RUN_BY_VERTEX(width, type)                                                                                   \
  extern "C" const char* by_vertex_##width(unsigned blocks, unsigned threads, u64 seed, const u32* labels,           \
                                           const u32* position, const u32* vertex, i64 first, i64 count, u32 rank,   \
                                           u32 ranks, u32 rows, type* out) {                                         \
    static std::string answer;                                                                                       \
    answer = cuda_on_cpu::run(blocks, threads, seed, [=] {                                                           \
      dbfs_by_vertex_##width(labels, position, vertex, first, count, rank, ranks, rows, out);                        \
    });                                                                                                              \
    return answer.c_str();                                                                                           \
  }

RUN_BY_VERTEX(1, u8)
RUN_BY_VERTEX(2, unsigned short)
RUN_BY_VERTEX(4, u32)
