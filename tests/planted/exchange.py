"""Planted faults of exchanges: crossings, aborts, frames between hosts. See ``tests.support.planting.Fault``."""

from tests.support.planting import Fault

FAULTS = (
    Fault(
        "workers/dbfs_workers/search/exchange/nccl.py",
        "        else:\n            self.bin_ends[:] = 0\n",
        "        else:\n            self._sent[:] = 0\n",
        ("tests/workers/test_nccl_grid.py::test_a_message_arrives_at_one_crossing",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/shared_memory.py",
        "        return (kernels.ABORTED if aborted else kernels.CROSSED), self.p\n",
        "        return kernels.CROSSED, self.p\n",
        ("tests/workers/test_exchange.py::test_a_run_of_one_rank_cancelled_before_it_begins",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/shared_memory.py",
        "if status != kernels.CROSSED or time.monotonic() > self._deadline:",
        "if status != kernels.CROSSED:",
        ("tests/workers/test_exchange.py::test_a_deadline_ends_a_crossing_that_all_ranks_reach",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/shared_memory.py",
        "            if self._abort_word() >> kernels.RUN_SHIFT < number:\n"
        "                segment.write_message(message, rank)\n",
        "            segment.write_message(message, rank)\n"
        "            if self._abort_word() >> kernels.RUN_SHIFT < number:\n",
        ("tests/workers/test_exchange.py::test_the_first_of_two_aborts_is_the_cause",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/kernels/stream.py",
        " and header[CROSSING] == tag & 0xFFFFFFFF)",
        ")",
        ("tests/workers/test_envoy_kernels.py::test_only_the_frame_of_this_crossing_is_taken",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/kernels/barrier.py",
        "            return CROSSED\n"
        "        if load_acquire(words, ABORT) >> RUN_SHIFT == tag >> 32:\n"
        "            return ABORTED\n",
        "            return CROSSED\n",
        ("tests/workers/test_exchange.py::test_an_abort_ends_the_wait_for_a_rank_that_does_not_come",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/across_hosts.py",
        "                link.send_abort(abort)",
        "                pass",
        ("tests/workers/test_across_hosts.py::test_an_end_of_a_run_reaches_the_other_hosts",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/kernels/stream.py",
        "header[KIND] == CROSSED and ",
        "",
        ("tests/workers/test_envoy_kernels.py::test_only_the_frame_of_this_crossing_is_taken",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/kernels/stream.py",
        "header[NUMBER] == tag >> 32 and ",
        "",
        ("tests/workers/test_envoy_kernels.py::test_only_the_frame_of_this_crossing_is_taken",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/kernels/envoy.py",
        " or frame[LENGTH] != length or",
        " or",
        ("tests/workers/test_envoy_kernels.py::test_only_the_frame_of_this_crossing_is_taken",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/kernels/stream.py",
        "        if entries < 0 or entries > most:",
        "        if entries > most:",
        ("tests/workers/test_envoy_kernels.py::test_a_header_that_announces_more_than_bins_hold_is_refused",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/kernels/stream.py",
        "        if entries < 0 or entries > most:",
        "        if entries < 0 or entries > most + 1:",
        ("tests/workers/test_envoy_kernels.py::test_a_header_that_announces_more_than_bins_hold_is_refused",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/kernels/stream.py",
        "header[HEADER_WORDS + k // receivers * (COUNTS + receivers) + COUNTS + k % receivers]",
        "header[HEADER_WORDS + k // receivers * (COUNTS + receivers) + k % receivers]",
        ("tests/workers/test_envoy_kernels.py::test_a_header_that_announces_more_than_bins_hold_is_refused",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/kernels/stream.py",
        "        arrive(words, stride, tag, sender)\n",
        "",
        ("tests/workers/test_envoy_kernels.py::test_only_the_frame_of_this_crossing_is_taken",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/kernels/barrier.py",
        "    if load_acquire(words, ABORT) >> RUN_SHIFT == tag >> 32:\n        return ABORTED, p\n",
        "",
        ("tests/workers/test_exchange.py::test_the_first_of_two_aborts_is_the_cause",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/shared_memory.py",
        '            raise self._late(where, level, phase, "while it led the level")',
        "            pass",
        ("tests/workers/test_exchange.py::test_a_look_finds_an_abort_and_the_deadline",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/shared_memory.py",
        "        if self._abort_word() >> kernels.RUN_SHIFT == self._number:\n            raise",
        "        if False:\n            raise",
        ("tests/workers/test_exchange.py::test_a_look_finds_an_abort_and_the_deadline",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/kernels/barrier.py",
        "gathered[peer * width + size] = words[at + ENDS + rank]",
        "gathered[peer * width + size] = words[at + ENDS]",
        ("tests/workers/test_led_levels.py::test_a_bin_that_is_full_in_the_middle_of_a_row",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/kernels/barrier.py",
        "        bin_ends[owner] = 0\n",
        "",
        ("tests/workers/test_exchange.py::test_a_crossing_empties_the_bins",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/shared_memory.py",
        "return self._slices[(self._crossing + 1) & 1][self.rank]",
        "return self._slices[self._crossing & 1][self.rank]",
        ("tests/workers/test_led_levels.py::test_levels_are_led_again_after_bottom_up_ones",),
    ),
    Fault(
        "workers/dbfs_workers/search/exchange/hosts.py",
        "space = process_space() or f",
        "space = process_space() and f",
        ("tests/workers/test_across_hosts.py::test_processes_of_one_host_have_one_kernel_and_one_user",),
    ),
)
