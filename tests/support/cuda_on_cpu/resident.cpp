// The resident kernel of one rank on a CPU: all of its steps, in small blocks.
#include "run.h"

#include <cmath>

#define __grid_constant__
#define __noinline__

inline void __threadfence_system() {}

struct uint4 {
  unsigned x, y, z, w;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

namespace dbfs {

template <class T>
inline T max(T a, T b) {
  return a < b ? b : a;
}
template <class T>
inline T min(T a, T b) {
  return b < a ? b : a;
}
inline unsigned long long clock64() {
  static unsigned long long cycles = 0;
  return ++cycles;
}

}  // namespace dbfs

#include "search/cuda/kernels/resident/resident.cu"

extern "C" const char* run_resident(unsigned blocks, unsigned threads, unsigned long long seed, void** arguments) {
  return run(dbfs_resident, blocks, threads, seed, arguments);
}
