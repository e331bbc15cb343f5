"""Plant each fault of ``tests.planted`` in a copy of the checkout, and list those that no test catches.

    python -m tests.planted [WORD ...]

With words, only faults whose file or text has one of them.
"""

import sys
import tempfile
import time
from pathlib import Path

from tests.planted.faults import FAULTS
from tests.support.planting import Fault, copy_checkout, planted, run_tests


def plant(faults: list[Fault]) -> int:
    """Plant each fault; return the exit code: 1 if a fault went through."""
    through = []
    with tempfile.TemporaryDirectory(prefix="dbfs-planted-") as folder:
        copy = Path(folder)
        copy_checkout(copy)
        sound = run_tests(sorted({test for fault in faults for test in fault.tests}), copy)
        if sound.caught:
            print(f"Tests fail without a fault:\n{sound.output}")
            return 1
        for fault in faults:
            start = time.monotonic()
            with planted(fault, copy):
                outcome = run_tests(fault.tests, copy)
            word = "hangs" if outcome.hung else "caught" if outcome.caught else "WENT THROUGH"
            print(f"{word:12} {time.monotonic() - start:5.0f} s  {fault}", flush=True)
            if not outcome.caught:
                through.append(fault)
    print(f"{len(faults) - len(through)} of {len(faults)} faults were caught")
    return 1 if through else 0


if __name__ == "__main__":
    words = sys.argv[1:]
    chosen = [fault for fault in FAULTS if not words or any(word in str(fault) for word in words)]
    sys.exit(plant(chosen) if chosen else f"no fault has one of the words {words}")
