"""A second run of failed tests, each alone after the others: the pytest plugin of the Makefile's three sizes.

A test that fails twice fails the run. A test that fails once is unstable: the run succeeds, and its last words are the
list of such tests with their first failures, to be entered in ``tests/unstable.md``.

No test runs again where more than single tests failed: a process crashed, a test exceeded its timeout, pytest could not
collect or failed itself, or more than ``MOST`` tests failed.
"""

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

# More failures than this are a fault, and their second runs would take longer than the suite.
MOST = 10
# Seconds of a second run: above the timeout of any test, which pytest-timeout holds.
DEADLINE = 1200.0
# Key of pytest's cache: the unstable tests since the Makefile last removed the key.
LISTED = "unstable/listed"


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin in the process that sees all reports: not in the workers of pytest-xdist."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SecondRun())


class SecondRun:
    """What failed in the run, and which of the failed tests passed alone."""

    def __init__(self) -> None:
        self.failures: dict[str, list[pytest.TestReport]] = defaultdict(list)
        self.fault: str | None = None
        self.unstable: dict[str, list[pytest.TestReport]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the report of a failure in a test's set-up, call or teardown."""
        if report.failed and report.when in ("setup", "call", "teardown"):
            self.failures[report.nodeid].append(report)
            if "from pytest-timeout." in report.longreprtext:
                self.fault = f"{report.nodeid} exceeded its timeout"

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        """Note the crash of a worker of pytest-xdist."""
        if error:
            self.fault = f"worker {node.gateway.id} crashed"

    def pytest_internalerror(self) -> None:
        """Note an error of pytest, which may be in a worker of pytest-xdist."""
        self.fault = "internal error of pytest"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Iterator[None]:
        """Run the failed tests again after all tests, and take back the failures of those that pass."""
        result = yield
        if self.fault:
            # A worker that crashes between tests leaves no failed report.
            session.testsfailed = max(1, session.testsfailed)
        elif session.testsfailed > sum(map(len, self.failures.values())):
            self.fault = "error outside a test"
        elif len(self.failures) > MOST:
            self.fault = f"more than {MOST} tests failed"
        else:
            for nodeid, reports in self.failures.items():
                if passes_alone(session.config, nodeid):
                    self.unstable[nodeid] = reports
                    session.testsfailed -= len(reports)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
        """Show the unstable tests below everything but the closing line, and no more among the failures."""
        stats = terminalreporter.stats
        for category in ("failed", "error"):
            kept = [report for report in stats.pop(category, []) if report.nodeid not in self.unstable]
            if kept:
                stats[category] = kept
        if self.unstable:
            stats["unstable"] = [reports[0] for reports in self.unstable.values()]
        yield
        if self.fault:
            terminalreporter.section(f"no test ran again: {self.fault}")
        # The runs of one make show the lists of those before, so that the last run shows all.
        cache = terminalreporter.config.cache
        listed = cache.get(LISTED, []) + [self.first_failure(nodeid) for nodeid in self.unstable]
        if listed:
            cache.set(LISTED, listed)
            terminalreporter.section("unstable tests, which passed alone: enter them in tests/unstable.md")
            terminalreporter.write_line("\n".join(listed))

    def first_failure(self, nodeid: str) -> str:
        """Return the name of a test, and all that its reports say."""
        lines = [f"___ first failure of {nodeid}"]
        for report in self.unstable[nodeid]:
            lines += [f"___ in {report.when}", report.longreprtext]
            for title, text in report.sections:
                lines += [f"--- {title}", text]
        return "\n".join(lines)


def passes_alone(config: pytest.Config, nodeid: str) -> bool:
    """Run one test in a new process with the options of this run. Show the output unless the test passes."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    reporter.write(f"\nsecond run, alone: {nodeid} ", flush=True)
    options = [argument for argument in config.invocation_params.args if argument not in config.args]
    # The last value of an option holds. No mark selects the test: a row of a matrix is its own diagonal if it is alone.
    alone = ["-p", f"no:{__name__}", "-n0", "-m", "", "-k", "", "--color=no", str(config.rootpath / nodeid)]
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", *map(str, options), *alone],
            cwd=config.invocation_params.dir,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=DEADLINE,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        reporter.write_line(f"FAILED: {expired}")
        return False
    # A process that ends in the middle of the test may exit with 0; only pytest's closing line tells that the test ran.
    if ran.returncode == 0 and re.search(r"^(=+ )?1 passed\b.* in ", ran.stdout, re.MULTILINE):
        reporter.write_line("PASSED")
        return True
    reporter.write_line("FAILED")
    reporter.write_line(ran.stdout)
    return False
