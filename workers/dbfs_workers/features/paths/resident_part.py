"""Distances of many pairs on a rank whose GPU has the whole graph."""

import time
from collections.abc import Iterator
from typing import Final

import numpy as np

from dbfs_workers.base.errors import DeviceFailedError, RunAbortedError
from dbfs_workers.base.spec import RunSpec
from dbfs_workers.features.paths.purpose import PairSearch, report
from dbfs_workers.search.cuda.abort_flag import AbortFlag
from dbfs_workers.search.cuda.run import KernelAbortedError, KernelHungError
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.members.part import MemberPart
from dbfs_workers.search.members.resident import ResidentRunner
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.reports import RankProgress, RankRun

# Share of the free memory that the blocks of a run may take.
_SHARE: Final = 1 / 4


class ResidentPaths(MemberPart):
    """The searches of a member for the distances of pairs: see ``MemberPart``."""

    purpose = PairSearch

    def __init__(self, runner: ResidentRunner) -> None:
        self._runner = runner
        self._flag: AbortFlag | None = None
        # The run under way and the place in it, guarded by the runner's lock.
        self._number = self._index = 0

    def traverse(self, partition: Partition, number: int, specs: RunSpec, deadline: float) -> Iterator[RankRun]:
        from dbfs_workers.features.paths.on_gpu import GpuPairs

        began, runner, where = time.perf_counter(), self._runner, f"rank {partition.rank}, between vertices"
        runner.member.require_room(partition.stripe, specs)
        flag = self._flag = self._flag or AbortFlag()
        searches = GpuPairs(runner.graph(), flag, int(_SHARE * runner.free_bytes()), where)
        try:
            for index, spec in enumerate(specs):
                with runner.lock:
                    runner.raise_if_stopped(number, f"rank {partition.rank}, before its first level")
                    flag.word[0], self._number, self._index = 0, number, index
                started = time.perf_counter()
                found = searches.distances(np.array(spec.sources, np.uint32).reshape(-1, 2), deadline)
                ended = time.perf_counter()
                yield report(found, ended - started, started - began, partition.version)
                began = ended
        except KernelAbortedError as error:
            runner.raise_if_stopped(number, str(error))
            raise RunAbortedError(str(error)) from error
        except KernelHungError as error:
            raise DeviceFailedError(f"{error}; restart its worker to free the GPU") from error
        finally:
            with runner.lock:
                self._number = 0

    def progress(self, number: int) -> RankProgress | None:
        return RankProgress(self._index, 0, False, 0, 0) if number == self._number else None

    def abort(self, number: int, cause: Cause, message: str, rank: int | None = None) -> None:  # noqa: ARG002
        if self._flag is not None and number == self._number:
            self._flag.word[0] = 1

    def free(self) -> None:
        if self._flag is not None:
            self._flag.free()
            self._flag = None
