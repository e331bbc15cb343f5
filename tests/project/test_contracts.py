"""The contracts between modules: tests share by tests/support only, and import-linter sees a forbidden import."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
LINTER = Path(sys.executable).with_name("lint-imports")
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]

STRIPE = "workers/dbfs_workers/search/partition/stripe.py"
# Of each contract, imports that break it: the file that gets the import, and the imported module.
FORBIDDEN = {
    "dbfs imports nothing of benchmarks, and workers import nothing of dbfs": [
        (STRIPE, "dbfs.errors"),
        ("dbfs/graph/graph.py", "benchmarks.rates"),
    ],
    "dbfs and benchmarks never import CuPy": [
        ("dbfs/building/on_gpu.py", "cupy"),
        ("dbfs/display/plots.py", "cupyx"),
        ("benchmarks/gpu.py", "cupy"),
    ],
    "imports in dbfs go down only": [
        ("dbfs/edges/edge_list.py", "dbfs.graph.graph"),
        ("dbfs/graph/load.py", "dbfs.assembly"),
        ("dbfs/errors.py", "dbfs.config"),
    ],
    "the core of dbfs knows no feature of the workers": [
        ("dbfs/building/memory.py", "dbfs_workers.features.lab.pages"),
        ("dbfs/service/runs.py", "dbfs_workers.assembly"),
    ],
    "no circles": [
        ("dbfs/graph/striped.py", "dbfs.graph.result"),
        ("dbfs/features/batches/batch.py", "dbfs.features.batches.sweeps"),
        ("workers/dbfs_workers/features/grid/grid.py", "dbfs_workers.features.grid.layout"),
    ],
    "imports in dbfs_workers go down only": [
        (STRIPE, "dbfs_workers.building.pieces"),
        ("workers/dbfs_workers/search/levels/loop.py", "dbfs_workers.features.grid.grid"),
    ],
    "imports in the search go down only": [
        (STRIPE, "dbfs_workers.search.levels.loop"),
        ("workers/dbfs_workers/search/backend.py", "dbfs_workers.search.exchange.protocol"),
    ],
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the packages and of the contracts."""
    for package in ("benchmarks", "dbfs", "workers"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def broken_contracts(tree: Path) -> tuple[set[str], str]:
    """Return the names of the contracts that a tree breaks, and the linter's report."""
    ran = subprocess.run(
        [LINTER, "--no-cache", "--no-logo"],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tree), str(tree / "workers")])},
        capture_output=True,
        text=True,
        check=False,
    )
    report = ran.stdout + ran.stderr
    broken = {contract["name"] for contract in CONTRACTS if f"{contract['name']} BROKEN" in report}
    assert f"Contracts: {len(CONTRACTS) - len(broken)} kept, {len(broken)} broken." in report
    assert ran.returncode == (1 if broken else 0)
    return broken, report


def module(file: str) -> str:
    return file.removeprefix("workers/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@pytest.mark.full
def test_the_contracts_are_kept(tree: Path) -> None:
    assert broken_contracts(tree)[0] == set()


def test_every_contract_is_broken_by_a_test() -> None:
    assert set(FORBIDDEN) == {contract["name"] for contract in CONTRACTS}


@pytest.mark.full
@pytest.mark.parametrize("turn", range(max(map(len, FORBIDDEN.values()))))
def test_a_forbidden_import_breaks_its_contract(tree: Path, turn: int) -> None:
    """One import of each contract at a time: the linter takes seconds."""
    planted = {contract: cases[turn] for contract, cases in FORBIDDEN.items() if turn < len(cases)}
    for file, imports in planted.values():
        with (tree / file).open("a") as source:
            source.write(f"\nimport {imports}\n")
    broken, report = broken_contracts(tree)
    assert set(planted) <= broken
    _, *parts = re.split(r"^(.+)\n-+\n", report, flags=re.MULTILINE)
    told = dict(zip(parts[::2], parts[1::2], strict=True))
    for contract, (file, imports) in planted.items():
        # The report names the import.
        assert module(file).rpartition(".")[2] in told[contract]
        assert imports.rpartition(".")[2] in told[contract]


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
        if name.startswith("tests.") and not name.startswith(("tests.support", "tests.planted"))
    }
    assert not found, "tests share by tests/support/ only, beside the planted faults"


def waits(path: Path) -> list[str]:
    """Return the waits of a file that have no deadline: calls that only the bounded primitives may make."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner, name = ast.unparse(node.func.value), node.func.attr
        least = {"rpc.send": 3, "asyncio.wait_for": 2}.get(f"{owner}.{name}", 0)
        of_client = owner.endswith("client") and name in ("run", "sync", "gather", "get_versions", "register_plugin")
        if len(node.args) < least or (of_client and not any(word.arg == "asynchronous" for word in node.keywords)):
            found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {owner}.{name}")
    return found


def test_no_call_between_processes_is_without_a_deadline(tmp_path: Path) -> None:
    """Waits pass ``awaiting.sync``, ``Gang``, ``RankCalls``, ``WorkerCalls`` or ``rpc.send``, which have deadlines.

    Benchmarks lie elsewhere: they may wait for their own workers.
    """
    files = [*ROOT.glob("dbfs/**/*.py"), *ROOT.glob("workers/**/*.py")]
    found = [wait for path in files for wait in waits(path)]
    assert not found
    sample = ROOT / "tests" / "support" / "stalls.py"
    assert any("client.run" in wait for wait in waits(sample))


MOST_ARGUMENTS = 12
MOST_LINES = 80


def larger(source: str) -> set[str]:
    """Return the functions that take too many arguments, or have too many lines that are code."""
    lines, names = source.splitlines(), set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        arguments = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        body = node.body[ast.get_docstring(node) is not None :]
        ends = (node.lineno, node.body[0].lineno), (body[0].lineno if body else 0, (node.end_lineno or 0) + 1)
        code = [line for first, end in ends for line in lines[first - 1 : end - 1] if line.strip(" ")]
        code = [line for line in code if not line.lstrip().startswith("#")]
        if len(arguments) - (arguments[:1] in (["self"], ["cls"])) > MOST_ARGUMENTS or len(code) > MOST_LINES:
            names.add(node.name)
    return names


def test_no_function_is_too_large() -> None:
    files = [path for top in ("dbfs", "workers") for path in (ROOT / top).rglob("*.py")]
    of_users = [ROOT / "dbfs" / place for place in ("assembly.py", "graph", "cli", "edges/readers/__init__.py")]
    found = {
        f"{path.relative_to(ROOT).as_posix()}: {name}"
        for path in files
        if not any(map(path.is_relative_to, of_users))
        for name in larger(path.read_text())
    }
    assert not found, f"functions take at most {MOST_ARGUMENTS} arguments and {MOST_LINES} lines of code"


def test_a_function_that_is_too_large_is_found() -> None:
    arguments = ", ".join(f"a{i}" for i in range(MOST_ARGUMENTS))
    text = '"""One."""\n' + "    # Two.\n\n" * 9
    for more, self, lines, seen in ((0, "self, ", 1, False), (1, "", 1, True), (0, "", 79, False), (0, "", 80, True)):
        last = ", b" * more
        source = f"def f({self}{arguments}{last}):\n    {text}" + "    x = 1\n" * lines
        assert larger(source) == ({"f"} if seen else set())


CORE = [
    *(ROOT / "dbfs" / room for room in ("base", "building", "cluster", "edges", "engines", "graph", "service")),
    *(ROOT / "workers" / "dbfs_workers" / room for room in ("base", "building", "ids", "search", "serving")),
]
_FEATURES = sorted(path.parent.name for path in ROOT.glob("dbfs/features/*/__init__.py"))
FEATURE = re.compile(rf"(?<![A-Za-z])({'|'.join(_FEATURES)})(?![A-Za-z0-9])")
# Files of the core that name a feature, or use its name in another sense.
NAMED = {
    ("dbfs/base/calls.py", "weights"): "a word of other libraries",
    ("dbfs/building/memory.py", "validation"): "edges are kept so that validations can read them",
    ("dbfs/cluster/doctor.py", "taskgraph"): "the advice to install UCX says what for",
    ("dbfs/cluster/gang.py", "catalog"): "the advice after a new start of the scheduler",
    ("dbfs/edges/edge_list.py", "weights"): "columns of weights in files",
    ("dbfs/edges/generate/corpus.py", "grid"): "names of Merrill's graphs",
    ("dbfs/edges/generate/lattice.py", "grid"): "lattices",
    ("dbfs/edges/readers/__init__.py", "paths"): "paths of files",
    ("dbfs/edges/readers/arrow.py", "batches"): "record batches of Arrow",
    ("dbfs/edges/readers/attributes.py", "weights"): "columns of weights in files",
    ("dbfs/edges/readers/file_set.py", "paths"): "paths of files",
    ("dbfs/edges/readers/metis.py", "weights"): "columns of weights in files",
    ("dbfs/edges/readers/pairs.py", "weights"): "columns of weights in files",
    ("dbfs/edges/readers/parquet.py", "batches"): "record batches of Arrow",
    ("dbfs/edges/tables/memory.py", "batches"): "record batches of Arrow",
    ("dbfs/edges/writers/target.py", "paths"): "paths of files",
    ("dbfs/edges/arrays.py", "weights"): "columns of weights in files",
    ("dbfs/edges/resolve.py", "weights"): "columns of weights in files",
    ("dbfs/edges/tables/weights.py", "weights"): "columns of weights in files",
    ("dbfs/edges/writers/edge_stream.py", "weights"): "columns of weights in files",
    ("dbfs/graph/counts.py", "grid"): "users read Graph.grid, the record's layout",
    ("dbfs/service/client_notes.py", "saved"): "clients tell the scheduler what they saved, for its log and metrics",
    ("dbfs/service/log.py", "saved"): "clients tell the scheduler what they saved, for its log and metrics",
}


def features_named(source: str) -> set[str]:
    """Return the features that code names: in a string, or as a word of a name, a field or an argument."""
    tree = ast.parse(source)
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            # Words of documentation.
            node.value.value = ""
        fields = (getattr(node, field, None) for field in ("id", "attr", "arg", "name", "value", "module"))
        found.update(name for text in fields if isinstance(text, str) for name in FEATURE.findall(text))
    return found


def test_the_core_names_no_feature() -> None:
    found = {
        (file.relative_to(ROOT).as_posix(), name)
        for room in CORE
        for file in room.rglob("*.py")
        for name in features_named(file.read_text())
    }
    assert found == set(NAMED)


def test_a_feature_that_is_named_is_found() -> None:
    for source in ("if self.living: pass", "x = 'dbfs.features.living'", "def f(living=0): pass", "run_living = 1"):
        assert features_named(source) == {"living"}
    assert features_named('"""Living."""\nalive = "grid2d"') == set()


def undocumented(sources: Iterable[str]) -> set[str]:
    """Return the public methods without a docstring, unless a class has it for them or a message's class has one.

    Such a class is a base, or a protocol that has the method's name.
    """
    bases, own, protocols, without = defaultdict(set), defaultdict(set), set(), set()
    for node in (node for source in sources for node in ast.parse(source).body if isinstance(node, ast.ClassDef)):
        names = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]
        bases[node.name].update(names)
        for each in node.body:
            if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) or each.name.startswith("_"):
                continue
            if ast.get_docstring(each):
                own[node.name].add(each.name)
                protocols.update({each.name} if "Protocol" in names else ())
            elif not (node.name.startswith("_") or any("handler" in ast.unparse(word) for word in each.decorator_list)):
                without.add((node.name, each.name))

    def inherits(name: str, method: str, below: tuple[str, ...] = ()) -> bool:
        # Two classes may have one name.
        above = bases[name] - {name, *below}
        return method in own[name] or any(inherits(base, method, (name, *below)) for base in above)

    return {f"{name}.{method}" for name, method in without if method not in protocols and not inherits(name, method)}


def test_every_public_method_has_documentation_of_its_own_or_of_its_base() -> None:
    files = [path for top in ("dbfs", "workers") for path in (ROOT / top).rglob("*.py")]
    assert undocumented(path.read_text() for path in files) == set()


def test_a_method_without_documentation_is_found() -> None:
    base = 'class A(ABC):\n    def of(self):\n        """One."""\n'
    like = 'class P(Protocol[T]):\n    def like(self):\n        """Two."""\n'
    made = "class B(m.A):\n    def of(self): ...\n    def like(self): ...\n    def _own(self): ...\n"
    made += "    def more(self): ...\n"
    heard = "class C:\n    @Message.handler\n    def hear(self, message): ...\n    def of(self): ...\n"
    assert undocumented([base, like, made, heard]) == {"B.more", "C.of"}
