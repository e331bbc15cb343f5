"""Planted faults of the queue, leases, results and living graphs. See ``tests.support.planting.Fault``."""

from tests.support.planting import Fault

FAULTS = (
    Fault(
        "dbfs/graph/result.py",
        "self.reports[-1].level + self.reports[-1].levels <= self.depth)",
        "True)",
        ("tests/test_graph.py::test_a_target_out_of_reach_bounds_nothing",),
    ),
    Fault(
        "dbfs/graph/result.py",
        "            self._labels.drop()\n        self._dropping()\n",
        "            self._labels.drop()\n",
        ("tests/test_service.py::test_dropped_labels_are_forgotten_without_another_run",),
    ),
    Fault(
        "dbfs/graph/living.py",
        "may have come before this one's turn.\n                self._graph.refresh()\n",
        "may have come before this one's turn.\n",
        ("tests/test_living.py::test_an_update_meets_a_freeze_that_came_first",),
    ),
    Fault(
        "dbfs/graph/graph.py",
        "        if record.version >= self.record.version:\n",
        "        if record:\n",
        ("tests/test_living.py::test_an_older_record_is_not_taken_over",),
    ),
    Fault(
        "workers/dbfs_workers/leases/leader.py",
        "            deadline=max(1e-3, end - time.monotonic()),",
        "            deadline=run.deadline,",
        ("tests/workers/test_lines.py::test_all_parts_of_a_run_share_its_deadline",),
    ),
    Fault(
        "workers/dbfs_workers/leases/leader.py",
        "        if self._end_run is not None:\n            self._end_run(note.number)\n",
        "",
        ("tests/workers/test_lines.py::test_a_stop_between_two_parts_ends_the_next_one",),
    ),
    Fault(
        "dbfs/service/leases.py",
        "                end = None if ending.cause is None else unknown\n",
        "                end = unknown\n",
        ("tests/test_queue.py::test_a_lease_that_is_not_stopped_lasts_until_rank_0_answers",),
    ),
    Fault(
        "dbfs/service/queue.py",
        "                log.run_started(run)\n            wanted |= run.workers\n",
        "                log.run_started(run)\n                wanted |= run.workers\n",
        ("tests/test_queue.py::test_no_run_overtakes_one_that_waits_for_the_same_worker",),
    ),
    Fault(
        "dbfs/service/queue.py",
        "                    wanted |= run.workers\n                    continue\n",
        "                    continue\n",
        ("tests/test_queue.py::test_no_run_overtakes_one_that_waits_for_the_end_of_a_lease",),
    ),
    Fault(
        "dbfs/service/queue.py",
        "            self.runs.remove(run)\n            self.start_runs()\n",
        "            self.runs.remove(run)\n",
        ("tests/test_queue.py::test_the_end_of_a_run_starts_the_next",),
    ),
    Fault(
        "dbfs/service/queue.py",
        "        if waiting >= most:",
        "        if waiting > most:",
        ("tests/test_queue.py::test_as_many_runs_wait_as_the_configuration_allows",),
    ),
    Fault(
        "workers/dbfs_workers/leases/leader.py",
        "                    if self._revoked or run.lease != self._lease or self._lines_broke():",
        "                    if self._revoked or self._lines_broke():",
        ("tests/workers/test_lines.py::test_a_stale_lease_is_refused_by_rank_0",),
    ),
    Fault(
        "workers/dbfs_workers/leases/leader.py",
        "                if self._revoked or note.finished == len(run.specs):",
        "                if note.finished == len(run.specs):",
        ("tests/workers/test_lines.py::test_a_batch_is_made_in_parts_and_ends_early_if_its_lease_is_revoked",),
    ),
    Fault(
        "workers/dbfs_workers/leases/leader.py",
        "                length = min(2 * length,",
        "                length = min(length,",
        ("tests/workers/test_lines.py::test_parts_double_up_to_their_time",),
    ),
    Fault(
        "workers/dbfs_workers/leases/leader.py",
        "            self._begun.wait(_FIRST_SECONDS)\n",
        "",
        ("tests/workers/test_lines.py::test_the_run_that_a_lease_was_granted_to_is_made_before_a_revocation",),
    ),
    Fault(
        "workers/dbfs_workers/leases/leader.py",
        "        if any(peer.line.hung_up for peer in self._peers):",
        "        if False:",
        ("tests/workers/test_lines.py::test_no_run_begins_over_a_broken_line",),
    ),
    Fault(
        "workers/dbfs_workers/leases/follower.py",
        " and part.lease <= self._ended:",
        " and part.lease < self._ended:",
        ("tests/workers/test_lines.py::test_a_stale_lease_is_refused_by_the_other_ranks",),
    ),
    Fault(
        "dbfs/service/queue.py",
        "            if run.under_lease:\n                continue\n",
        "",
        ("tests/test_queue.py::test_a_run_under_a_lease_holds_up_no_run",),
    ),
    Fault(
        "dbfs/service/leases.py",
        "LeaseEnd(lease.first_number + _SKIPPED_NUMBERS, failed=True)",
        "LeaseEnd(lease.first_number, failed=True)",
        ("tests/test_queue.py::test_a_lease_that_is_not_stopped_lasts_until_rank_0_answers",),
    ),
    Fault(
        "dbfs/service/leases.py",
        "graph.must_recover = graph.recovers and end.failed",
        "graph.must_recover = graph.recovers",
        ("tests/test_queue.py::test_a_lease_that_is_not_stopped_lasts_until_rank_0_answers",),
    ),
)
