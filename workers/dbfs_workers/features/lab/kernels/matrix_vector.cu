// Matrix-vector product (Deng, Wang and Mu 2009): one launch a level, a warp a row.
//
// The product of the transposed adjacency matrix and the frontier's vector is the next frontier. A row's lanes look at all
// its in-neighbours in every level, visited or not, as a product does. Reads 16 bytes a row and 8 an edge of the whole
// graph in every level; writes 4 bytes a vertex found. `offsets` and `columns` are those of the in-edges.
#include "features/lab/kernels/walk.cuh"
#include "features/lab/kernels/workspace.cuh"

using namespace dbfs;
using namespace dbfs::lab;

extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_matrix_vector(const LabArguments a) {
  Tally tally;
  for (u64 row = u64(blockIdx.x) * kWarps + warp(); row < a.rows; row += u64(gridDim.x) * kWarps) {
    tally.looked_at += lane() == 0;
    const List list = lane() == 0 ? tally.expand(a, row) : list_of(a, row);
    bool found = false;
    u32 parent = 0;
    for (i64 at = list.begin + lane(); at < list.end; at += kLanes) {
      const u32 neighbour = a.columns[at];
      if (__ldcg(&a.labels[neighbour]) == i32(distance(a)) - 1) {
        found = true;
        parent = neighbour;
      }
    }
    const u32 ballot = __ballot_sync(kAll, found);
    if (ballot && lane() == u32(__ffs(ballot)) - 1) label_unvisited(a, row, parent, tally);
  }
  tally.add_to(a.counters);
}
