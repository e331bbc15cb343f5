"""Plants each fault into a copy of the checkout, and lists the faults that the tests which have to fail let through.

``python -m tests.planted [WORD ...]`` plants the faults whose file or text has one of the words.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.planted.faults import FAULTS, Fault

ROOT = Path(__file__).parents[2]
# Seconds of the tests of a fault, the compilation of kernels included. A fault that lets a test hang is caught late.
SECONDS = 300


def main(words: list[str]) -> int:
    """Plant the faults; return the number of those that went through."""
    chosen = [fault for fault in FAULTS if not words or any(word in fault.file or word in fault.new for word in words)]
    with tempfile.TemporaryDirectory() as top:
        copy, kept = Path(top, "copy"), Path(top, "kernels")
        for name in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
        tests = sorted({test for fault in chosen for test in fault.tests})
        assert outcome(copy, kept, tests) == "passed", "a test fails without a fault"
        through = [fault for fault in chosen if not caught(copy, kept, fault)]
    print(f"{len(chosen) - len(through)} of {len(chosen)} faults caught")
    return len(through)


def caught(copy: Path, kept: Path, fault: Fault) -> bool:
    """Plant one fault, run its tests, and take the fault out again."""
    path = copy / fault.file
    text = path.read_text(encoding="utf-8")
    assert text.count(fault.old) == 1, f"{fault.file}: {fault.old!r} is there {text.count(fault.old)} times"
    path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    with tempfile.TemporaryDirectory() as fresh:
        # Numba does not notice that a kernel of another file has changed, which a kernel that it keeps calls.
        found = outcome(copy, Path(fresh) if "kernel" in fault.file else kept, fault.tests)
    path.write_text(text, encoding="utf-8")
    print(f"{'WENT THROUGH' if found == 'passed' else found:12} {fault.file}: {fault.new.strip()[:70]!r}", flush=True)
    return found != "passed"


def outcome(copy: Path, kernels: Path, tests: list[str] | tuple[str, ...]) -> str:
    """Run tests in the copy; return ``passed``, ``failed`` or ``hung``."""
    environment = os.environ | {"PYTHONPATH": f"{copy}:{copy / 'workers'}", "NUMBA_CACHE_DIR": str(kernels)}
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout=120", *tests]
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return "hung"
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stdout + done.stderr)
    return "passed" if done.returncode == 0 else "hung" if "from pytest-timeout" in done.stdout else "failed"


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
