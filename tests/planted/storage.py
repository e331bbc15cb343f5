"""Planted faults of how graphs are read, numbered, stored and counted. See ``tests.support.planting.Fault``."""

from tests.support.planting import Fault

FAULTS = (
    Fault(
        "workers/dbfs_workers/checks/validation_kernels.py",
        "                if not directed and (not predecessors or",
        "                if (not predecessors or",
        ("tests/workers/test_validation.py::test_a_vertex_is_not_supported_by_an_edge_that_leaves_it",),
    ),
    Fault(
        "workers/dbfs_workers/storage/pairs_kernels.py",
        "_MOST_DIGITS = 19",
        "_MOST_DIGITS = 20",
        ("tests/readers/test_readers_strictness.py::test_an_id_past_64_bits_is_no_other_id",),
    ),
    Fault(
        "workers/dbfs_workers/storage/id_table.py",
        'replacement=b"\\0\\xff")',
        'replacement=b"\\0")',
        ("tests/test_ids.py::test_a_byte_0_belongs_to_its_own_string",),
    ),
    Fault(
        "workers/dbfs_workers/storage/id_codes.py",
        "            self._table[:] = 0\n",
        "",
        ("tests/workers/test_numbering.py::test_a_table_of_small_integers_is_emptied_before_it_takes_large_ones",),
    ),
    Fault(
        "workers/dbfs_workers/storage/id_codes.py",
        "        while 4 * count > 3 * slots:\n            slots *= 2\n",
        "",
        ("tests/workers/test_numbering.py::test_a_table_of_strings_grows_before_it_is_three_quarters_full",),
    ),
    Fault(
        "workers/dbfs_workers/storage/stripe.py",
        "MAX_INTERNAL_IDS = 2**32 - 1",
        "MAX_INTERNAL_IDS = 2**32",
        ("tests/workers/test_stripe.py::test_the_last_internal_id_means_no_vertex",),
    ),
    Fault(
        "workers/dbfs_workers/storage/building_kernels.py",
        "        if not (symmetrise and src[i] == dst[i]):",
        "        if src[i] != dst[i]:",
        ("tests/workers/test_ordering.py::test_a_self_loop_starts_and_ends_at_its_vertex",),
    ),
    Fault(
        "workers/dbfs_workers/storage/ordering.py",
        'kind="stable"',
        'kind="quicksort"',
        ("tests/workers/test_ordering.py::test_vertices_of_equal_degree_stay_in_the_order_of_ids",),
    ),
    Fault(
        "workers/dbfs_workers/storage/pages.py",
        "            if most == self.max_degree and most in before_degrees:",
        "            if most < self.max_degree:",
        ("tests/workers/test_living.py::test_the_longest_row_may_become_shorter",),
    ),
    Fault(
        "workers/dbfs_workers/storage/grid.py",
        "    return max(stripe.words_local, -(-stripe.n_local // (2 * Grid.of(stripe.p).columns)))",
        "    return -(-stripe.n_local // (2 * Grid.of(stripe.p).columns))",
        ("tests/workers/test_grid_loop.py::test_a_bin_has_room_for_a_bitmap_however_many_columns",),
    ),
    Fault(
        "dbfs/building/memory.py",
        "    rows, copies = stripe.n_local, 2 if in_edges else 1\n",
        "    rows, copies = stripe.n_local, 1\n",
        ("tests/test_build.py::test_the_estimate_counts_in_edges",),
    ),
    Fault(
        "workers/dbfs_workers/storage/building_kernels.py",
        "            columns[at] = u_owner * height + u_row",
        "            columns[at] = v_owner * height + v_row",
        ("tests/workers/test_building.py::test_rows_of_every_length",),
    ),
    Fault(
        "workers/dbfs_workers/storage/building_kernels.py",
        "        rows[at] = u_row & mask",
        "        rows[at] = u_row",
        (
            "tests/workers/test_building.py::test_buckets_are_cut_as_the_vertices_need",
            "tests/workers/test_building.py::test_partitions_hold_exactly_the_edges",
        ),
    ),
    Fault(
        "workers/dbfs_workers/storage/building_kernels.py",
        "        if u >= end or v >= end:",
        "        if u >= end:",
        ("tests/workers/test_building.py::test_an_id_out_of_range_is_named",),
    ),
    Fault(
        "workers/dbfs_workers/storage/pages_kernels.py",
        "            counted = directed or own <= column\n            takes[at] = not repeated",
        "            counted = directed or own < column\n            takes[at] = not repeated",
        ("tests/workers/test_living.py::test_a_self_loop_is_one_edge",),
    ),
    Fault(
        "workers/dbfs_workers/storage/pages.py",
        "            m_local = self.m_local + int(degrees.sum() - before_degrees.sum())",
        "            m_local = self.m_local + int(degrees.sum())",
        ("tests/workers/test_living.py::test_random_updates_against_a_set",),
    ),
    Fault(
        "workers/dbfs_workers/storage/pages.py",
        "            freed = _with_runs(free, rows.starts[moved], run_pages(before_degrees))",
        "            freed = free",
        ("tests/workers/test_living.py::test_freed_pages_are_used_again",),
    ),
    Fault(
        "workers/dbfs_workers/storage/integer_kernels.py",
        "        low += 1 if splitters[low] <= one else 0",
        "        low += 1 if splitters[low] < one else 0",
        ("tests/workers/test_numbering.py::test_ranges_and_keys_follow_the_order",),
    ),
    Fault(
        "workers/dbfs_workers/storage/integer_kernels.py",
        "        starts[digit] = place + 1\n",
        "",
        ("tests/workers/test_numbering.py::test_ids_are_numbered_in_ascending_order",),
    ),
    Fault(
        "workers/dbfs_workers/storage/stripe.py",
        "        return max(0, -(-(self.n - rank) // self.p))",
        "        return max(0, (self.n - rank) // self.p)",
        ("tests/workers/test_stripe.py::test_slices_are_whole_words_and_hold_all_owned_rows",),
    ),
    Fault(
        "workers/dbfs_workers/storage/ordering.py",
        "        parents[reached] = self.vertex[parents[reached]]\n",
        "",
        ("tests/workers/test_ordering.py::test_labels_come_back_by_vertex",),
    ),
    Fault(
        "workers/dbfs_workers/storage/pairs_kernels.py",
        "            if at == start or value < np.uint64(low) or",
        "            if at == start or",
        ("tests/readers/test_readers_pairs_kernel.py::test_same_as_the_pattern",),
    ),
    Fault(
        "workers/dbfs_workers/storage/pairs_kernels.py",
        " or (text[start] == _ZERO and at > start + 1):",
        ":",
        ("tests/readers/test_readers_told.py::test_a_code_in_a_later_row_is_an_error",),
    ),
    Fault(
        "workers/dbfs_workers/storage/change_log.py",
        "        found.reverse()\n",
        "",
        ("tests/test_repair.py::test_the_log_has_the_last_change_of_each_edge",),
    ),
    Fault(
        "workers/dbfs_workers/storage/changed_rows.py",
        'packbits(differs, bitorder="little")',
        "packbits(differs)",
        ("tests/test_repair.py::test_changed_rows_are_a_bitmap_until_they_are_read",),
    ),
    Fault(
        "workers/dbfs_workers/members/label_room.py",
        " or needed <= pooled_bytes():",
        ":",
        ("tests/test_label_room.py::test_labels_that_fit_into_the_memory_of_released_ones_are_not_refused",),
    ),
    Fault(
        "dbfs/building/memory.py",
        '        run["frames"] = _envoy_bytes(stripe, hosts, layout)',
        '        run["frames"] = stream.nbytes(hosts.count - 1)',
        ("tests/test_estimate.py::test_ranks_on_several_hosts_take_memory_for_each_other",),
    ),
    Fault(
        "dbfs/building/memory.py",
        "partition = grid.nbytes(stripe, -(-directed_edges // stripe.p), bottom_up=in_edges)\n    share",
        "partition = grid.nbytes(stripe, -directed_edges // stripe.p, bottom_up=in_edges)\n    share",
        ("tests/test_estimate.py::test_a_grid_on_gpus_has_the_partition_of_a_grid_on_cpus",),
    ),
    Fault(
        "dbfs/building/memory.py",
        "now <= then + wanted // _STEPS",
        "now <= then ^ wanted // _STEPS",
        ("tests/test_estimate.py::test_free_memory_is_read_until_it_no_longer_grows",),
    ),
    Fault(
        "dbfs/edges/readers/options.py",
        "return self.source is not None or self.target is not None",
        "return self.source is not None and self.target is not None",
        ("tests/readers/test_readers_told.py::test_one_named_end_is_not_for_a_text_without_names",),
    ),
)
