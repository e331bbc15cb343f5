"""Planted faults of turns, updates, forming and rebuilds that random games find: see ``tests.support.simulated``."""

from tests.support.planting import Fault

_GAMES = ("tests/service/test_simulation.py::test_games",)

FAULTS = (
    Fault(
        "dbfs/service/queue.py",
        "free = not wanted & run.workers and run.graph not in stuck",
        "free = run.graph not in stuck",
        _GAMES,
    ),
    Fault(
        "dbfs/service/queue.py",
        "                if self._revoke(run):\n",
        "                if self._revoke(run) and False:\n",
        _GAMES,
    ),
    Fault(
        "workers/dbfs_workers/serving/turns/leader.py",
        "        if self._revoked or request.turn != self._turn or self._lines_broke():",
        "        if request.turn != self._turn or self._lines_broke():",
        _GAMES,
    ),
    Fault(
        "dbfs/features/living/updates.py",
        "        if message.batch_id in decided:\n            return PickledValue.of(decided[message.batch_id])\n",
        "",
        _GAMES,
    ),
    Fault(
        "dbfs/service/scheduler.py",
        "        if self._given_up.get(run.run_id) == run.client:",
        "        if False:",
        _GAMES,
    ),
    Fault(
        "dbfs/service/scheduler.py",
        "                graph.lost.add(rank)\n",
        "",
        _GAMES,
    ),
    Fault(
        "dbfs/service/scheduler.py",
        "        await self._turns.stop(graph.record.graph_id, Cause.CANCELLED, unloaded)\n",
        "",
        _GAMES,
    ),
    Fault(
        "dbfs/service/forming.py",
        "    graph_id, addresses, epoch = record.graph_id, record.addresses, next(EPOCHS)\n",
        "    graph_id, addresses, epoch = record.graph_id, record.addresses, 1\n",
        _GAMES,
    ),
    Fault(
        "workers/dbfs_workers/serving/turns/leader.py",
        "        self._number += 1\n",
        "",
        _GAMES,
    ),
    Fault(
        "workers/dbfs_workers/serving/turns/leader.py",
        "                if any(map(failed, ranks)):\n                    self._revoked = self._failed = True\n",
        "                if any(map(failed, ranks)):\n",
        _GAMES,
    ),
    Fault(
        "dbfs/service/scheduler.py",
        "        self._table.release_all(client)\n        self._end_turns(client)\n",
        "        self._table.release_all(client)\n",
        _GAMES,
    ),
    Fault(
        "dbfs/service/graph_table.py",
        "        self.reserved.pop(record.graph_id, None)\n        return graph, replaced",
        "        return graph, replaced",
        _GAMES,
    ),
    Fault(
        "workers/dbfs_workers/serving/turns/worker.py",
        "        self.leave(graph_id)\n        follower",
        "        follower",
        _GAMES,
    ),
    Fault(
        "workers/dbfs_workers/serving/turns/worker.py",
        "        self._door.refuse(gang.token)\n        gang.latest, gang.token",
        "        gang.latest, gang.token",
        _GAMES,
    ),
    Fault(
        "workers/dbfs_workers/features/living/worker.py",
        "        member.latest = prepared.partition\n",
        "",
        _GAMES,
    ),
    Fault(
        "dbfs/features/rebuild/scheduler.py",
        "        moved.decided.update((batch_id, report.value()) for batch_id, report in message.reports)\n",
        "",
        ("tests/features/rebuild/test_versions.py::test_an_update_that_loses_a_worker_is_made_once",),
    ),
    Fault(
        "dbfs/features/rebuild/rebuilding.py",
        "        places = places_of(found)\n",
        "        places = places_of(found[: len(lineage.versions)])\n",
        _GAMES,
    ),
    Fault(
        "workers/dbfs_workers/features/rebuild/worker.py",
        '        log.decisions.add(Record(facts, {"vertices": first.vertices}))\n',
        "",
        _GAMES,
    ),
)
