"""A plugin for pytest that counts how often NetworkX ran a function on the backend, and how often it fell back.

``pytest -p tests.support.networkx_calls`` writes the counts as JSON into the file that NETWORKX_CALLS names.
"""

import collections
import json
import logging
import os
from pathlib import Path

ran: collections.Counter[str] = collections.Counter()
fell_back: collections.Counter[str] = collections.Counter()
raised: collections.Counter[str] = collections.Counter()


class Counting(logging.Handler):
    """Counts NetworkX's messages about where a function runs."""

    def emit(self, record: logging.LogRecord) -> None:
        """Count one message, by the arguments of its format: formatting them would take most of the time."""
        text, arguments = str(record.msg), record.args
        if not isinstance(arguments, tuple):
            return
        if text.startswith("Using backend"):
            ran[str(arguments[1])] += 1
        elif text.startswith("Falling back"):
            fell_back[str(arguments[1])] += 1
        elif "falling back" in text:
            raised[" ".join(map(str, arguments[:3]))] += 1


def pytest_configure() -> None:
    """Count from here on."""
    logger = logging.getLogger("networkx.utils.backends")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(Counting())


def pytest_sessionfinish() -> None:
    """Write the counts."""
    Path(os.environ["NETWORKX_CALLS"]).write_text(json.dumps({"ran": ran, "fell back": fell_back, "raised": raised}))
