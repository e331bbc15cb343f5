"""The contracts between modules: who may import whom."""

import ast
from pathlib import Path

TESTS = Path(__file__).parent


def imported(source: str) -> set[str]:
    """Return the absolute names of the modules, and of the names from modules, that Python code imports."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports of tests are absolute"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def test_no_test_imports_another() -> None:
    found = {
        (path.relative_to(TESTS).as_posix(), name)
        for path in TESTS.rglob("*.py")
        for name in imported(path.read_text())
        if name.startswith("tests.") and not name.startswith("tests.support")
    }
    assert not found, "tests share by tests/support/ only"
