"""Planted faults of CUDA kernels, which run on this CPU. See ``tests.support.planting.Fault``."""

from tests.support.planting import Fault

FAULTS = (
    Fault(
        "workers/dbfs_workers/features/living/kernels/doubt.cuh",
        "const bool doubted = row != child && atomicCAS",
        "const bool doubted = atomicCAS",
        ("tests/cuda/test_repair_gpu.py::test_repairs_agree_with_scipy",),
    ),
    Fault(
        "workers/dbfs_workers/features/living/kernels/doubt.cuh",
        "s, child, ahead, doubted, t.round + 1);",
        "s, child, ahead, false, t.round + 1);",
        ("tests/cuda/test_repair_gpu.py::test_repairs_agree_with_scipy",),
    ),
    Fault(
        "workers/dbfs_workers/features/living/kernels/search.cuh",
        "offer<kWhole>(a, t, s, other, distance + 1,",
        "offer<kWhole>(a, t, s, other, distance,",
        ("tests/cuda/test_repair_gpu.py::test_repairs_agree_with_scipy",),
    ),
    Fault(
        "workers/dbfs_workers/features/living/kernels/finish.cuh",
        "    if (distance < 0) missing +=",
        "    if (distance <= 0) missing +=",
        ("tests/cuda/test_repair_gpu.py::test_repairs_agree_with_scipy",),
    ),
    Fault(
        "workers/dbfs_workers/features/living/kernels/finish.cuh",
        "    if (lane_id() == 0) a.changed[row >> 5] = changed;\n",
        "",
        ("tests/cuda/test_repair_gpu.py::test_repairs_agree_with_scipy",),
    ),
    Fault(
        "workers/dbfs_workers/search/cuda/kernels/phases/messages.cu",
        "      if (!claim_unseen(visited, row)) continue;\n",
        "",
        ("tests/cuda/test_cuda_messages.py::test_labels_are_scipys",),
    ),
    Fault(
        "workers/dbfs_workers/search/cuda/kernels/phases/messages.cu",
        "    received += size;\n",
        "",
        ("tests/cuda/test_cuda_messages.py::test_labels_are_scipys",),
    ),
    Fault(
        "workers/dbfs_workers/features/batches/kernels/batch.cu",
        "          fresh = all & ~known;",
        "          fresh = known ? 0 : all;",
        ("tests/cuda/test_cuda_batch.py::test_any_batch_has_scipys_distances",),
    ),
    Fault(
        "workers/dbfs_workers/features/batches/kernels/batch.cu",
        "    if (mine) found[lanes.place(first_id + row)] = mine;",
        "    if (mine) found[lanes.place(first_id + row)] = wanted;",
        ("tests/cuda/test_cuda_batch.py::test_widths",),
    ),
    Fault(
        "workers/dbfs_workers/features/batches/kernels/batch.cu",
        "    ends[place] = (before & ((1ull << kLeftEdges) - 1)) + size;",
        "    ends[place] = size;",
        ("tests/cuda/test_cuda_batch.py::test_widths",),
    ),
    Fault(
        "workers/dbfs_workers/features/batches/on_gpu.py",
        "int(sums[_LOOKED])",
        "0",
        ("tests/cuda/test_cuda_batch.py::test_looks_at_edges_are_counted",),
    ),
    Fault(
        "workers/dbfs_workers/features/batches/kernels/batch.cu",
        "step <<= 1) bits |= __shfl_xor_sync(kAll, bits, step);",
        "step <<= 1);",
        ("tests/cuda/test_cuda_batch.py::test_widths",),
    ),
    Fault(
        "workers/dbfs_workers/features/batches/kernels/batch.cu",
        "        lacks = lacks && !some;",
        "        lacks = false;",
        ("tests/cuda/test_cuda_batch.py::test_widths",),
    ),
    Fault(
        "workers/dbfs_workers/features/batches/kernels/batch.cu",
        "__ldg(&front[lanes.place(first_id + row)]) & wanted",
        "__ldg(&front[lanes.place(row)]) & wanted",
        ("tests/cuda/test_cuda_batch.py::test_ranks_that_map_words",),
    ),
    Fault(
        "workers/dbfs_workers/features/batches/kernels/sweeps.cu",
        "        if (edge > before && __ldg(&columns[list + edge - 1]) == other) continue;\n",
        "",
        ("tests/cuda/test_cuda_batch.py::test_sweeps_have_the_dependencies_of_their_definition",),
    ),
    Fault(
        "workers/dbfs_workers/features/batches/sweeps_cuda.py",
        "        self._totals[:] = 0\n",
        "",
        ("tests/cuda/test_cuda_batch.py::test_sweeps_have_the_dependencies_of_their_definition",),
    ),
    Fault(
        "workers/dbfs_workers/features/batches/resident_part.py",
        "(int(wanted), 0, 0, 0, 0), sliced=False)[0]:",
        "(int(wanted), 0, 0, 0, 0), sliced=False) and wanted:",
        ("tests/cuda/test_member.py::test_the_memory_of_batches_goes_if_a_rank_wants_it",),
    ),
    Fault(
        "workers/dbfs_workers/features/batches/resident_part.py",
        "        self._watch_run(number)\n        self.barrier.begin",
        "        self.barrier.begin",
        ("tests/cuda/test_member.py::test_an_abort_reaches_ranks_that_ask_each_other_for_memory",),
    ),
    Fault(
        "workers/dbfs_workers/features/batches/words.py",
        "        pair = int(scratch.turned == everywhere)\n",
        "        pair = int(everywhere)\n",
        ("tests/cuda/test_cuda_batch.py::test_ranks_that_map_words",),
    ),
    Fault(
        "workers/dbfs_workers/features/grid/kernels/grid.cu",
        "    return place + (row * columns + column - row) * n_local;",
        "    return place + (row * columns + column) * n_local;",
        ("tests/cuda/test_cuda_grid.py::test_labels_are_scipys",),
    ),
    Fault(
        "workers/dbfs_workers/features/grid/kernels/grid.cu",
        "    edges += __ldg(&degrees[row]);\n",
        "",
        ("tests/cuda/test_cuda_grid.py::test_labels_are_scipys",),
    ),
    Fault(
        "workers/dbfs_workers/features/living/kernels/merging.cu",
        "const bool takes = !repeated && there == (remove != 0);",
        "const bool takes = there == (remove != 0);",
        ("tests/cuda/test_merging.py::test_batches_make_the_rows_of_pages",),
    ),
    Fault(
        "workers/dbfs_workers/features/living/kernels/merging.cu",
        "      duplicates += amount - 1;",
        "      duplicates += amount;",
        ("tests/cuda/test_merging.py::test_batches_make_the_rows_of_pages",),
    ),
    Fault(
        "workers/dbfs_workers/features/living/kernels/merging.cu",
        "    if (remove && there && repeated) at += found;\n",
        "",
        ("tests/cuda/test_merging.py::test_batches_make_the_rows_of_pages",),
    ),
    Fault(
        "workers/dbfs_workers/serving/reads/kernels/by_vertex.cu",
        "if (vertex && label != kNone) {",
        "if (vertex) {",
        ("tests/cuda/test_ordered_labels.py::test_predecessors_come_as_vertices",),
    ),
    Fault(
        "workers/dbfs_workers/serving/reads/kernels/by_vertex.cu",
        "    if (at - row * ranks == rank) {",
        "    if (true) {",
        ("tests/cuda/test_ordered_labels.py::test_distances_come_in_the_order_of_vertices",),
    ),
    Fault(
        "workers/dbfs_workers/search/cuda/kernels/resident/summary.cu",
        "degree += at[i] == bin ? degrees[i] : 0;",
        "degree += degrees[i];",
        ("tests/cuda/test_summary.py::test_sums_are_those_of_numpy",),
    ),
    Fault(
        "workers/dbfs_workers/search/cuda/kernels/resident/summary.cu",
        "for (u32 bin = kNear + threadIdx.x; bin < shared_bins",
        "for (u32 bin = kNear + 1 + threadIdx.x; bin < shared_bins",
        ("tests/cuda/test_summary.py::test_sums_are_those_of_numpy",),
    ),
)
