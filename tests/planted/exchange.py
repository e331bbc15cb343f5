"""Planted faults of exchanges: crossings, aborts, frames between hosts. See ``tests.support.planting.Fault``."""

from tests.support.planting import Fault

FAULTS = (
    Fault(
        "workers/dbfs_workers/search/exchange/kernels/barrier.py",
        "    exchange(words, rank * stride + ARRIVED, tag)\n    if fetch_add(words, rank * stride + SLEEPERS, 0):\n",
        "    sleepers = fetch_add(words, rank * stride + SLEEPERS, 0)\n"
        "    exchange(words, rank * stride + ARRIVED, tag)\n"
        "    if sleepers:\n",
        ("tests/search/test_wake_ups.py::test_a_rank_that_arrives_wakes_all_that_sleep_until_then",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/kernels/barrier.py",
        "        wake(words, rank * stride + ARRIVED)\n",
        "        pass\n",
        ("tests/search/test_wake_ups.py::test_a_rank_asleep_is_woken_in_time",),
    ),
    Fault(
        "workers/dbfs_workers/search/cpu/kernels/team_tasks.py",
        "    exchange(control, LAST, number)\n    if fetch_add(control, SLEEPERS, 0):\n",
        "    sleepers = fetch_add(control, SLEEPERS, 0)\n    exchange(control, LAST, number)\n    if sleepers:\n",
        ("tests/search/test_wake_ups.py::test_a_task_wakes_the_helpers_and_the_last_of_them_the_leader",),
    ),
    Fault(
        "workers/dbfs_workers/search/cpu/kernels/team_tasks.py",
        "        wake(control, GATE)\n",
        "        pass\n",
        ("tests/search/test_wake_ups.py::test_a_task_wakes_the_helpers_and_the_last_of_them_the_leader",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/kernels/barrier.py",
        "joined = max(joined, count) if largest >> (i - 1) & 1 else joined + count",
        "joined = joined + count",
        ("tests/search/exchange/test_exchange.py::test_every_crossing_joins_the_counts_of_all_ranks",),
    ),
    Fault(
        "workers/dbfs_workers/search/reports/counts.py",
        "        joined[..., place] = np.maximum.reduceat(rows[..., place], firsts)\n",
        "        joined[..., place] = np.add.reduceat(rows[..., place], firsts)\n",
        ("tests/search/test_reports.py::test_a_largest_count_is_not_added_up",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/nccl.py",
        "        else:\n            self.bin_ends[:] = 0\n",
        "        else:\n            self._sent[:] = 0\n",
        ("tests/features/grid/test_nccl_grid.py::test_a_message_arrives_at_one_crossing",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/shared_memory.py",
        "        return (kernels.ABORTED if aborted else kernels.CROSSED), self.p\n",
        "        return kernels.CROSSED, self.p\n",
        ("tests/search/exchange/test_exchange.py::test_a_run_of_one_rank_cancelled_before_it_begins",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/shared_memory.py",
        "if status != kernels.CROSSED or time.monotonic() > self._deadline:",
        "if status != kernels.CROSSED:",
        ("tests/search/exchange/test_exchange.py::test_a_deadline_ends_a_crossing_that_all_ranks_reach",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/shared_memory.py",
        "            if self._abort_word() >> kernels.RUN_SHIFT < number:\n"
        "                segment.write_message(message, rank)\n",
        "            segment.write_message(message, rank)\n"
        "            if self._abort_word() >> kernels.RUN_SHIFT < number:\n",
        ("tests/search/exchange/test_exchange.py::test_the_first_of_two_aborts_is_the_cause",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/kernels/frames.py",
        " and header[CROSSING] == tag & 0xFFFFFFFF)",
        ")",
        ("tests/search/exchange/test_envoy_kernels.py::test_only_the_frame_of_this_crossing_is_taken",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/kernels/barrier.py",
        "            return CROSSED\n"
        "        if load_acquire(words, ABORT) >> RUN_SHIFT == tag >> 32:\n"
        "            return ABORTED\n",
        "            return CROSSED\n",
        ("tests/search/exchange/test_exchange.py::test_an_abort_ends_the_wait_for_a_rank_that_does_not_come",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/across_hosts.py",
        "                link.send_abort(abort)",
        "                pass",
        ("tests/search/exchange/test_across_hosts.py::test_an_end_of_a_run_reaches_the_other_hosts",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/kernels/frames.py",
        "header[KIND] == CROSSED and ",
        "",
        ("tests/search/exchange/test_envoy_kernels.py::test_only_the_frame_of_this_crossing_is_taken",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/kernels/frames.py",
        "header[NUMBER] == tag >> 32 and ",
        "",
        ("tests/search/exchange/test_envoy_kernels.py::test_only_the_frame_of_this_crossing_is_taken",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/kernels/envoy.py",
        " or frame[LENGTH] != length or",
        " or",
        ("tests/search/exchange/test_envoy_kernels.py::test_only_the_frame_of_this_crossing_is_taken",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/kernels/frames.py",
        "        if entries < 0 or entries > most:",
        "        if entries > most:",
        ("tests/search/exchange/test_envoy_kernels.py::test_a_header_that_announces_more_than_bins_hold_is_refused",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/kernels/frames.py",
        "        if entries < 0 or entries > most:",
        "        if entries < 0 or entries > most + 1:",
        ("tests/search/exchange/test_envoy_kernels.py::test_a_header_that_announces_more_than_bins_hold_is_refused",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/kernels/frames.py",
        "header[HEADER_WORDS + k // receivers * (COUNTS + receivers) + COUNTS + k % receivers]",
        "header[HEADER_WORDS + k // receivers * (COUNTS + receivers) + k % receivers]",
        ("tests/search/exchange/test_envoy_kernels.py::test_a_header_that_announces_more_than_bins_hold_is_refused",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/kernels/frames.py",
        "        arrive(words, stride, tag, sender)\n",
        "",
        ("tests/search/exchange/test_envoy_kernels.py::test_only_the_frame_of_this_crossing_is_taken",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/kernels/barrier.py",
        "    if load_acquire(words, ABORT) >> RUN_SHIFT == tag >> 32:\n        return ABORTED, p\n",
        "",
        (
            "tests/search/exchange/test_exchange.py::test_a_rank_that_finds_all_others_at_the_barrier_of_a_cancelled_run",
        ),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/shared_memory.py",
        '            raise self._late(where, level, phase, "while it led the level")',
        "            pass",
        ("tests/search/exchange/test_exchange.py::test_a_look_finds_an_abort_and_the_deadline",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/shared_memory.py",
        "        if self._abort_word() >> kernels.RUN_SHIFT == self._number:\n            raise",
        "        if False:\n            raise",
        ("tests/search/exchange/test_exchange.py::test_a_look_finds_an_abort_and_the_deadline",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/kernels/barrier.py",
        "gathered[peer * width + size] = words[at + ENDS + rank]",
        "gathered[peer * width + size] = words[at + ENDS]",
        ("tests/search/test_led_levels.py::test_a_bin_that_is_full_in_the_middle_of_a_row",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/kernels/barrier.py",
        "        bin_ends[owner] = 0\n",
        "",
        ("tests/search/exchange/test_exchange.py::test_a_crossing_empties_the_bins",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/shared_memory.py",
        "return self._slices[(self._crossing + 1) & 1][self.rank]",
        "return self._slices[self._crossing & 1][self.rank]",
        ("tests/search/test_led_levels.py::test_levels_are_led_again_after_bottom_up_ones",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/hosts.py",
        "space = process_space() or f",
        "space = process_space() and f",
        ("tests/search/exchange/test_across_hosts.py::test_processes_of_one_host_have_one_kernel_and_one_user",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/hosted.py",
        "        carrier.reset(False)\n",
        "",
        ("tests/search/exchange/test_hosted.py",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/hosted.py",
        "        self.bin_ends[:] = 0\n        return carrier.cross",
        "        return carrier.cross",
        ("tests/search/exchange/test_hosted.py",),
    ),
)
