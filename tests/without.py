"""Take a feature away from a copy of the checkout, and show that the rest of the house stands.

    python -m tests.without FEATURE [--quick]

The copy has to import all of its modules, define all names, keep the contracts, print its command line's help, and
(without ``--quick``) pass parity tests. ``tests.support.taking_away`` says what goes with a feature.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.planting import copy_checkout
from tests.support.taking_away import FEATURES, House

# Parity tests, as pytest's -k names them: those that run, and those of a feature.
_PARITY: Final = "every_way or many_traversals or out_of_reach"
_PARITY_OF: Final = {"taskgraph": ("tasks",), "grid": ("2-D",)}


def checks(house: House, *, quick: bool) -> Iterator[tuple[str, list[str]]]:
    """Yield what the copy has to pass: its name, and the command."""
    bin_ = Path(sys.executable).parent
    yield "all modules can be imported", [sys.executable, "-c", _IMPORT_ALL]
    yield "all names are defined", [str(bin_ / "ruff"), "check", "--isolated", "--select", "F821", "dbfs", "workers"]
    yield "the contracts are kept", [str(bin_ / "lint-imports"), "--no-cache", "--no-logo"]
    yield "the command line has help", [sys.executable, "-m", "dbfs", "--help"]
    if not quick:
        others = "".join(f" and not {word}" for each in house.features for word in _PARITY_OF.get(each, ()))
        run = ["-m", "pytest", "-q", "-x", "--timeout=60", "tests/graph/test_parity.py", "-m", "not full"]
        yield "the parity tests pass", [sys.executable, *run, "-k", f"({_PARITY}){others}"]


_IMPORT_ALL = """
import importlib, pathlib, pkgutil, dbfs, dbfs_networkx_info, dbfs_workers
assert pathlib.Path.cwd() in pathlib.Path(dbfs.__file__).parents, "the checkout's modules, not the copy's"
for package in dbfs, dbfs_workers:
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if found.name != "dbfs.__main__":
            importlib.import_module(found.name)
"""


def main(feature: str, *, quick: bool) -> int:
    """Take a feature away; return the exit code: 1 if the rest does not stand."""
    with tempfile.TemporaryDirectory(prefix="dbfs-without-") as folder:
        root = Path(folder)
        copy_checkout(root)
        house = House(root, feature)
        house.take_away()
        if "validation" in house.features:
            for file in root / "tests" / "graph" / "test_parity.py", root / "tests" / "support" / "parity.py":
                file.write_text(re.sub(r", validate=\w+", "", file.read_text()))
        print(f"without {', '.join(sorted(house.features))}:", flush=True)
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), str(root / "workers")])}
        failed = 0
        for name, command in checks(house, quick=quick):
            ran = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
            failed += ran.returncode != 0
            print(f"  {'NOT ' * (ran.returncode != 0)}{name}", flush=True)
            if ran.returncode:
                print("\n".join((ran.stdout + ran.stderr).splitlines()[-40:]))
    return 1 if failed else 0


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("feature", choices=FEATURES)
    arguments.add_argument("--quick", action="store_true", help="without the parity tests")
    given = arguments.parse_args()
    sys.exit(main(given.feature, quick=given.quick))
