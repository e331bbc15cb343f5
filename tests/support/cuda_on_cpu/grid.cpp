// The kernels of features/grid/kernels/grid.cu on a CPU, and `mark` of search/cuda/kernels/phases/levels.cu.
#include "common.h"

#define __activemask() 1u
#define __match_any_sync(mask, value) 1u
#include "search/cuda/kernels/phases/levels.cu"
#include "features/grid/kernels/grid.cu"
#include "run.h"

RUN(mark)
RUN(grid_top_down)
RUN(grid_enlist)
RUN(grid_bottom_up)
RUN(grid_contract)
RUN(grid_count_bits)
RUN(grid_unpack)
