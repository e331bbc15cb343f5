"""Check that a script starts processes only behind ``if __name__ == "__main__":``.

A worker process imports the script that started it. Without the guard, each worker would start a cluster of its own,
and Python would end it with a long traceback. This check raises one sentence before any process is started.
"""

import ast
import sys
from pathlib import Path
from types import FrameType, ModuleType

import dask

from dbfs.errors import MainGuardError

_NAME = "__name__"


def require_main_guard() -> None:
    """Check the top-level statement of the main script that is running.

    Notebooks, interactive sessions, ``python -c``, ``python -m PACKAGE`` and executed strings have no script that a
    worker would import, and pass.

    Raises:
        MainGuardError: a worker process would run the statement again.
    """
    main = sys.modules.get("__main__")
    if main is None or dask.config.get("distributed.worker.multiprocessing-method") == "fork":
        return
    file, line = _running(main)
    if file is not None and not _guarded(file, line):
        raise MainGuardError(
            f"{file}, line {line}: dbfs.connect starts worker processes, and each of them imports this script; "
            'put the code of the script behind  if __name__ == "__main__":  or connect with processes=False'
        )


def _running(main: ModuleType) -> tuple[str | None, int]:
    """Return the file and the line of the main script that is running; no file if workers will import no script."""
    file = getattr(main, "__file__", None)
    spec = getattr(main, "__spec__", None)
    # multiprocessing does not import the __main__ module of a package again.
    if not isinstance(file, str) or (spec is not None and spec.name.endswith(".__main__")):
        return None, 0
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        code = frame.f_code
        if code.co_name == "<module>" and frame.f_globals is vars(main) and code.co_filename == file:
            return file, frame.f_lineno
        frame = frame.f_back
    return None, 0


def _guarded(file: str, line: int) -> bool:
    """Return whether the top-level statement at ``line`` depends on ``__name__``, or may not be reached in a worker."""
    try:
        script = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return True
    for statement in script.body:
        last = statement.end_lineno or statement.lineno
        if statement.lineno <= line <= last:
            return _uses_name(statement)
        # An earlier test may end the import of the script, as in: if __name__ != "__main__": raise SystemExit
        if isinstance(statement, ast.If) and _uses_name(statement.test) and _has(ast.NotEq, statement.test):
            return True
    return True


def _uses_name(tree: ast.AST) -> bool:
    return any(isinstance(node, ast.Name) and node.id == _NAME for node in ast.walk(tree))


def _has(kind: type[ast.AST], tree: ast.AST) -> bool:
    return any(isinstance(node, kind) for node in ast.walk(tree))
