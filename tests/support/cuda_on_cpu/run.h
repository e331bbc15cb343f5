// How a test calls a kernel.
#pragma once
#include <tuple>

#include "cuda_on_cpu.h"

// Run a kernel; `arguments` has a pointer to each argument, as for CUDA's launches.
template <class... Types, size_t... Places>
const char* run(void (*kernel)(Types...), std::index_sequence<Places...>, unsigned blocks, unsigned threads,
                unsigned long long seed, void** arguments) {
  static std::string said;
  said = cuda_on_cpu::run(blocks, threads, seed, [=] { kernel(*static_cast<Types*>(arguments[Places])...); });
  return said.c_str();
}
template <class... Types>
const char* run(void (*kernel)(Types...), unsigned blocks, unsigned threads, unsigned long long seed,
                void** arguments) {
  return run(kernel, std::index_sequence_for<Types...>(), blocks, threads, seed, arguments);
}

#define RUN(name)                                                                                                  \
  extern "C" const char* run_##name(unsigned blocks, unsigned threads, unsigned long long seed, void** arguments) { \
    return run(dbfs_##name, blocks, threads, seed, arguments);                                                      \
  }
