"""The planted faults: small changes of the kind that a reorganisation brings in, and the tests that have to fail."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        file: the file, from the top of the checkout.
        old, new: the text that is there once, and what the fault makes of it.
        tests: the tests that have to fail.
    """

    file: str
    old: str
    new: str
    tests: tuple[str, ...]


_WORKERS = "workers/dbfs_workers"

FAULTS = (
    Fault(
        f"{_WORKERS}/checks/validation_kernels.py",
        "if not directed and (not predecessors or np.uint32(at_u) == v):",
        "if not predecessors or np.uint32(at_u) == v:",
        ("tests/workers/test_validation.py::test_a_vertex_is_not_supported_by_an_edge_that_leaves_it",),
    ),
    Fault(
        f"{_WORKERS}/storage/pairs_kernels.py",
        "_MOST_DIGITS = 19",
        "_MOST_DIGITS = 20",
        ("tests/readers/test_readers_strictness.py::test_an_id_past_64_bits_is_no_other_id",),
    ),
    Fault(
        f"{_WORKERS}/storage/id_table.py",
        'marked = pc.replace_substring(column.cast(pa.large_binary()), pattern=b"\\0", replacement=b"\\0\\xff")',
        "marked = column.cast(pa.large_binary())",
        ("tests/test_ids.py::test_a_byte_0_belongs_to_its_own_string",),
    ),
    Fault(
        f"{_WORKERS}/storage/id_codes.py",
        "            self._table[:] = 0\n",
        "",
        ("tests/test_ids.py::test_integers_keep_their_codes_when_a_large_one_comes",),
    ),
    Fault(
        f"{_WORKERS}/storage/stripe.py",
        "MAX_INTERNAL_IDS = 2**32 - 1",
        "MAX_INTERNAL_IDS = 2**32",
        ("tests/workers/test_stripe.py::test_the_last_internal_id_means_no_vertex",),
    ),
    Fault(
        f"{_WORKERS}/storage/building_kernels.py",
        "if not (symmetrise and src[i] == dst[i]):",
        "if not src[i] == dst[i]:",
        ("tests/workers/test_ordering.py::test_a_self_loop_starts_and_ends_at_its_vertex",),
    ),
    Fault(
        f"{_WORKERS}/storage/ordering.py",
        'np.argsort(-degrees, kind="stable")',
        "np.argsort(-degrees)",
        ("tests/workers/test_ordering.py::test_vertices_of_equal_degree_stay_in_the_order_of_ids",),
    ),
    Fault(
        f"{_WORKERS}/storage/pages.py",
        "if most == self.max_degree and most in before_degrees:",
        "if False:",
        ("tests/workers/test_living.py::test_the_longest_row_may_become_shorter",),
    ),
    Fault(
        "dbfs/building/memory.py",
        "rows, copies = stripe.n_local, 2 if in_edges else 1",
        "rows, copies = stripe.n_local, 1",
        ("tests/test_build.py::test_the_estimate_counts_in_edges",),
    ),
    Fault(
        "dbfs/service/queue.py",
        "                log.run_started(run)\n            wanted |= run.workers\n",
        "                log.run_started(run)\n                wanted |= run.workers\n",
        ("tests/test_queue.py::test_no_run_overtakes_one_that_waits_for_its_workers",),
    ),
    Fault(
        f"{_WORKERS}/exchange/shared_memory.py",
        "time.monotonic() > self._deadline:\n            self._wait(",
        "False:\n            self._wait(",
        ("tests/workers/test_exchange.py::test_a_deadline_ends_a_crossing_that_all_ranks_reach",),
    ),
    Fault(
        f"{_WORKERS}/exchange/shared_memory.py",
        "if not self._closed and kernels.get_abort(segment.words) >> kernels.RUN_SHIFT < number:",
        "if not self._closed:",
        ("tests/workers/test_exchange.py::test_the_first_of_two_aborts_is_the_cause",),
    ),
    Fault(
        "dbfs/engines/task_levels.py",
        "        self.deadline.enforce(self._doing)\n        self.run.check(self._doing)\n        futures",
        "        futures",
        ("tests/test_taskgraph.py::test_every_level_looks_at_the_deadline_and_the_run",),
    ),
    Fault(
        "dbfs/graph/result.py",
        "self.reports[-1].level + self.reports[-1].levels <= self.depth)",
        "True)",
        ("tests/test_graph.py::test_a_target_out_of_reach_bounds_nothing",),
    ),
    Fault(
        f"{_WORKERS}/leases/leader.py",
        "deadline=max(1e-3, end - time.monotonic()),",
        "deadline=run.deadline,",
        ("tests/workers/test_lines.py::test_all_parts_of_a_run_share_its_deadline",),
    ),
    Fault(
        f"{_WORKERS}/leases/leader.py",
        "if self._end_run is not None:",
        "if False:",
        ("tests/workers/test_lines.py::test_a_stop_between_two_parts_ends_the_next_one",),
    ),
    Fault(
        f"{_WORKERS}/storage/grid.py",
        "return max(stripe.words_local, -(-stripe.n_local // (2 * Grid.of(stripe.p).columns)))",
        "return -(-stripe.n_local // (2 * Grid.of(stripe.p).columns))",
        ("tests/workers/test_grid_loop.py::test_a_bin_has_room_for_a_bitmap_however_many_columns",),
    ),
    Fault(
        "dbfs/graph/living.py",
        "if record.version >= self.record.version:\n            grown",
        "if True:\n            grown",
        ("tests/test_living.py::test_an_older_record_is_not_taken_over",),
    ),
)
