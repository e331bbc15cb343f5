// The kernels of search/cuda/kernels/phases/phases.cu on a CPU, and of search/cuda/kernels/phases/levels.cu those that the taskgraph engine needs.
#include "common.h"

#define __activemask() 1u
#include "search/cuda/kernels/phases/phases.cu"
// Lanes of levels.cu meet in part, which the emulator's lanes can't.
#define __match_any_sync(mask, value) 1u
#include "search/cuda/kernels/phases/levels.cu"
#include "run.h"

RUN(edge_count)
RUN(expand)
RUN(count_by_owner)
RUN(copy_to_bins)
RUN(contract)
RUN(bottom_up)
RUN(mark)
