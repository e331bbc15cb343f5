"""Which tests ``make quick`` runs, in a small checkout."""

from pathlib import Path

import pytest

from tests.support.quick import ROOT, affected_tests

FILES = {
    "dbfs/room/__init__.py": "",
    "dbfs/room/one.py": "",
    "dbfs/room/two.py": "",
    "dbfs/room/deep/four.py": "",
    "dbfs/room/deep/three.py": "",
    "dbfs/other.py": "",
    "workers/dbfs_workers/search/cuda/driver.py": "",
    "workers/dbfs_workers/search/cuda/kernels/deep/phase.cuh": "",
    "tests/support/helper.py": "import dbfs.room.one",
    "tests/room/test_one.py": "from dbfs.room import one",
    "tests/room/test_helped.py": "from tests.support import helper",
    "tests/room/deep/test_three.py": "from dbfs.room.deep import three",
    "tests/search/cuda/test_driver.py": "def test():\n    from dbfs_workers.search.cuda.driver import launch",
    "tests/search/cuda/test_compile.py": "import dbfs_workers.search.cuda.driver",
    "tests/test_other.py": "from dbfs import other, __version__",
}


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        ("dbfs/room/one.py", ["tests/room/test_helped.py", "tests/room/test_one.py"]),
        (
            "dbfs/room/two.py",
            ["tests/room/deep/test_three.py", "tests/room/test_helped.py", "tests/room/test_one.py"],
        ),
        ("dbfs/room/deep/four.py", ["tests/room/deep/test_three.py"]),
        ("dbfs/other.py", ["tests/test_other.py"]),
        ("tests/support/helper.py", ["tests/room/test_helped.py"]),
        ("tests/room/test_one.py", ["tests/room/test_one.py"]),
        ("workers/dbfs_workers/search/cuda/kernels/deep/phase.cuh", ["tests/search/cuda/test_driver.py"]),
        ("dbfs/gone/away.py", []),
        ("README.md", []),
    ],
)
def test_tests_of_a_change(tmp_path: Path, changed: str, chosen: list[str]) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert affected_tests([changed], tmp_path) == chosen


@pytest.mark.full
def test_this_file_is_of_what_it_tests() -> None:
    assert "tests/project/test_quick.py" in affected_tests(["tests/support/quick.py"], ROOT)
