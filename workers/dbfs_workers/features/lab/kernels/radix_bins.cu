// Sorting neighbours into a bin for each owner, and contracting bins (Merrill 2012, section 6).
//
// The sort is that of search/cuda/kernels/common/owner_bins.cuh. Counting reads 4 bytes an edge and a byte of the bitmask, and writes a byte;
// copying reads 5 bytes an edge and writes 4 for each that is kept (9 and 8 with parents). A contraction reads a bin where
// it lies, on this GPU or a peer's: 4 bytes an entry (8 with parents), a byte of the bitmask and a label.
#include "search/cuda/kernels/common/owner_bins.cuh"
#include "features/lab/kernels/workspace.cuh"

using namespace dbfs;
using namespace dbfs::lab;

// Drop what was visited and duplicates, and count the rest by owner.
extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_count_by_owner(const LabArguments a) {
  __shared__ CullScratch s;
  __shared__ OwnerCounts<kWarps> by_owner;
  Tally tally;
  start_culling(s);
  count_by_owner(a.in_ids, a.in_size, a.rows, a.owners, by_owner, a.flags, a.tile_sums, [&](bool valid, u32 id) {
    ItemsOf<1> items{{id}, {}, {}, u32(valid)};
    drop_marked(a, items, tally);
    drop_duplicates(a, items, s, tally);
    return items.has(0);
  });
  tally.add_to(a.counters);
}

// Copy what is left to the bins, as local ids of the owners; parents become internal ids.
extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_copy_to_bins(const LabArguments a) {
  __shared__ OwnerPlaces<kWarps> by_owner;
  copy_to_bins(a.in_size, a.owners, a.flags, a.tile_sums, by_owner, [&](u64 from, u64 to, u32 owner) {
    a.out_ids[to] = a.in_ids[from] - owner * a.rows;
    if (a.out_parents) a.out_parents[to] = a.first_id + a.in_parents[from];
  });
}

// Label what is new in a rank's bin, from before[0] to before[1] of its queue, and append that to the vertex queue. Without
// a bitmask the bin is this rank's own, whose vertices are marked already; then the labels alone say what is new.
extern "C" __global__ void __launch_bounds__(kThreads, 1) dbfs_lab_contract_bin(const LabArguments a) {
  __shared__ CullScratch s;
  __shared__ BlockScratch block;
  Tally tally;
  start_culling(s);
  for_each_of_range(a.before[0], a.before[1], [&](bool valid, u64 place) {
    ItemsOf<1> items{{valid ? a.in_ids[place] : 0}, {valid && a.in_parents ? a.in_parents[place] : 0}, {}, u32(valid)};
    tally.looked_at += valid;
    if (a.bitmask) drop_marked(a, items, tally);
    drop_labelled(a, items, tally);
    drop_duplicates(a, items, s, tally);
    label_all(a, items, tally);
    append(a, items, block);
  });
  tally.add_to(a.counters);
}
