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
)
