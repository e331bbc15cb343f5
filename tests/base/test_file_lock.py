"""The lock by a file: one holder at a time, until the holder's process is gone."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from dbfs_workers.base import file_lock

HOLD = """
import sys
from pathlib import Path
from dbfs_workers.base import file_lock
with file_lock.held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_is_held_until_its_process_dies(tmp_path: Path) -> None:
    path, got = tmp_path / "folder" / "made.lock", threading.Event()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"

        def take() -> None:
            with file_lock.held(path):
                got.set()

        waiting = threading.Thread(target=take)
        waiting.start()
        assert not got.wait(0.2)
        os.kill(holder.pid, signal.SIGKILL)
        assert got.wait(60)
        waiting.join()
    assert not path.exists()


def test_one_process_at_a_time_has_a_lock_whose_file_is_removed_and_made_anew(tmp_path: Path) -> None:
    path, inside, most = tmp_path / "made.lock", [0], [0]

    def take() -> None:
        for _ in range(200):
            with file_lock.held(path):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                os.sched_yield()
                inside[0] -= 1

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert not path.exists()


def test_nothing_is_held_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with file_lock.held(tmp_path / "file" / "made.lock"), file_lock.held(tmp_path / "file" / "made.lock"):
        assert not (tmp_path / "file" / "made.lock").exists()
