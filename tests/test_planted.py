"""Every planted fault can still be planted, and names tests that exist; ``make planted`` shows that they catch it."""

from pathlib import Path

import pytest

from tests.planted.faults import FAULTS, Fault

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.file}: {fault.new.strip()[:40]}")
def test_a_fault_can_be_planted(fault: Fault) -> None:
    assert (ROOT / fault.file).read_text(encoding="utf-8").count(fault.old) == 1
    for test in fault.tests:
        file, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text(encoding="utf-8")
