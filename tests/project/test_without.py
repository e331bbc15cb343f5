"""Features can be taken away: see ``tests.without``."""

import subprocess
import sys

import pytest

from tests.support.planting import ROOT
from tests.support.taking_away import FEATURES

# With this one go the laboratory and two others, which stand on it.
OFTEN = "living"


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "feature", [pytest.param(name, marks=pytest.mark.full if name == OFTEN else pytest.mark.long) for name in FEATURES]
)
def test_the_house_stands_without_a_feature(feature: str) -> None:
    command = [sys.executable, "-m", "tests.without", feature]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
