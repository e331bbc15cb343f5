"""Runs of pytest on a folder of tests, which tests of the suite's own rules write."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_suite(folder: Path, tests: str, *options: str) -> tuple[int, str]:
    """Write a module of tests and run the folder; return pytest's exit code and output."""
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    full\n    gpu\n    long\n    matrix\n")
    (folder / "test_suite.py").write_text(tests)
    # Variables of the pytest that runs this test would tell the other one that it is a worker of pytest-xdist.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    plugins = [word for name in ("xdist", "pytest_timeout", "tests.support.unstable") for word in ("-p", name)]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "--timeout=20", *plugins, *options],
        cwd=folder,
        env=env | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    print(ran.stdout, ran.stderr)
    return ran.returncode, ran.stdout
