"""A feature is taken away from a copy of the checkout: its folders, and what the faces make of it.

With the folders go the features that import them. In the assembling files and the faces go the imports of what is gone,
and what is made of these names: the base of a class, an element of a list, the entry of a dictionary, a keyword of a
call, and else the statement, with the names that it defines. What a function does under a condition goes with the
condition; a function that always needs what is gone goes as a whole. A parameter goes with its last use, and a
command's option with its parameter.
"""

import ast
import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from shutil import rmtree
from typing import Final, TypeVar

import networkx

from tests.support.planting import ROOT

N = TypeVar("N", bound=ast.AST)

FEATURES: Final = tuple(sorted(path.parent.name for path in ROOT.glob("dbfs/features/*/__init__.py")))
SIDES: Final = {"dbfs": "", "dbfs_workers": "workers"}
FACES: Final = (
    "dbfs/*.py",
    "dbfs/cli/*.py",
    "dbfs/dashboard/*.py",
    "dbfs/display/**/*.py",
    "dbfs/graph500/*.py",
    "dbfs/networkx/*.py",
    "workers/dbfs_workers/assembly.py",
    "dbfs_networkx_info.py",
)
"""The files that may name features."""

# Modules of faces that are of one feature alone, and import no more of it than the methods of a graph.
_ALONE: Final = {
    "batches": ("dbfs.cli.measure",),
    "lab": ("dbfs.lab", "dbfs.cli.lab"),
    "paths": ("dbfs.cli.path",),
    "weights": ("dbfs.networkx.weighted",),
}
_CLASS: Final = re.compile(r"(Graph|Result)(\[\w+\])?$")
# Constants whose strings are names.
_NAMING: Final = {"__all__", "FUNCTIONS"}


class Gone(Exception):  # noqa: N818 - no error: what is made of a missing name goes as well
    """Raised through what is made of a name that is gone."""


def imports(tree: ast.AST) -> Iterator[tuple[ast.Import | ast.ImportFrom, ast.alias, str]]:
    """Yield each import of a module: its statement, and each name of it with its full name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node, alias, f"{node.module}.{alias.name}") for alias in node.names)


class House:
    """The copy, and what of it is gone: modules and names in full, and methods of the gone classes."""

    def __init__(self, root: Path, feature: str) -> None:
        self.root = root
        self.features = {feature}
        while more := {each for each in set(FEATURES) - self.features if self._stands_on_gone(each)}:
            self.features |= more
        self.gone = {name for each in self.features for name in _ALONE.get(each, ())}
        self.gone |= {f"{side}.features.{each}" for each in self.features for side in SIDES}
        kept = [folder for each in set(FEATURES) - self.features for folder in self._folders(each)[:1]]
        others = {name for kind in (dict, list, set, str, networkx.Graph) for name in dir(kind)}
        gone = [self._folders(each)[0] for each in self.features]
        self.methods = _methods(gone) - _methods([*kept, root / "dbfs" / "graph"]) - others

    def _folders(self, feature: str) -> list[Path]:
        return [self.root / top / side / "features" / feature for side, top in SIDES.items()]

    def _stands_on_gone(self, feature: str) -> bool:
        names = {f"{side}.features.{each}." for each in self.features for side in SIDES}
        files = [file for folder in self._folders(feature) for file in folder.rglob("*.py")]
        return any(f"{full}.".startswith(tuple(names)) for file in files for *_, full in imports(_tree(file)))

    def is_gone(self, name: str) -> bool:
        """Return whether a module, or a name of a module, is gone."""
        parts = name.split(".")
        return any(".".join(parts[:end]) in self.gone for end in range(1, len(parts) + 1))

    def take_away(self) -> None:
        """Delete the folders, and then in the faces what is made of them until nothing more is found."""
        for feature in self.features:
            for folder in (*self._folders(feature), self.root / "tests" / "features" / feature):
                rmtree(folder, ignore_errors=True)
        for name in {module for each in self.features for module in _ALONE.get(each, ())}:
            path = self.root / name.replace(".", "/")
            rmtree(path, ignore_errors=True)
            path.with_suffix(".py").unlink(missing_ok=True)
        before = -1
        while before < len(self.gone):
            before = len(self.gone)
            for file in dict.fromkeys(file for pattern in FACES for file in self.root.glob(pattern)):
                tree, text = _tree(file), file.read_text()
                module = ".".join(file.relative_to(self.root).with_suffix("").parts)
                module = module.removeprefix("workers.").removesuffix(".__init__")
                changed = ast.unparse(Face(self, module).visit(tree))
                if changed != ast.unparse(ast.parse(text)):
                    file.write_text(changed + "\n")


class Face(ast.NodeTransformer):
    """Takes what is gone out of a module.

    Args:
        house: the copy.
        module: the module's name in full.
    """

    def __init__(self, house: House, module: str) -> None:
        self.house, self.module = house, module
        # A pass before this one may have found names gone that are used above their definition.
        self.lost = {name.removeprefix(f"{module}.") for name in house.gone if name.rpartition(".")[0] == module}
        self.modules: dict[str, str] = {}
        self.strings: set[str] = set()
        self.scope: type[ast.AST] = ast.Module

    def statements(self, body: list[ast.stmt], scope: type[ast.AST]) -> list[ast.stmt]:
        """Return the statements that stay; raise ``Gone`` if a function can't be without one of them."""
        outer, self.scope = self.scope, scope
        kept: list[ast.stmt] = []
        try:
            for node in body:
                try:
                    found = self.visit(node)
                except Gone:
                    self.lose(node)
                else:
                    kept += found if isinstance(found, list) else [found] if found is not None else []
        finally:
            self.scope = outer
        return kept

    def lose(self, node: ast.stmt) -> None:
        """Note that the names are gone which a statement defines; raise ``Gone`` for one in a function without any."""
        names = _defined(node)
        if self.scope is ast.FunctionDef and not names:
            raise Gone
        if self.scope is not ast.ClassDef:
            self.lost |= names
        if self.scope is ast.Module:
            self.house.gone |= {f"{self.module}.{name}" for name in names}

    def kept(self, nodes: Sequence[N]) -> list[N]:
        """Return the nodes that stay."""
        found = []
        for node in nodes:
            with contextlib.suppress(Gone):
                found.append(self.visit(node))
        return found

    def visit_Module(self, node: ast.Module) -> ast.Module:
        node.body = self.statements(node.body, ast.Module)
        return node

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> ast.stmt | None:
        for _, alias, full in list(imports(ast.Module([node], []))):
            name = alias.asname or alias.name
            if self.house.is_gone(full):
                node.names.remove(alias)
                self.lost.add(name)
                self.house.gone |= {f"{self.module}.{name}"} if self.scope is ast.Module else set()
            else:
                self.modules[name] = full
        return node if node.names else None

    visit_ImportFrom = visit_Import  # noqa: N815 - the name of ast

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if node.id in self.lost:
            raise Gone
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        owner = self.modules.get(node.value.id) if isinstance(node.value, ast.Name) else None
        of_class = node.attr in self.house.methods and _CLASS.search(ast.unparse(node.value)) is not None
        if of_class or (owner is not None and self.house.is_gone(f"{owner}.{node.attr}")):
            raise Gone
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if node.value in self.strings:
            raise Gone
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if _defined(node) & _NAMING:
            place = "dbfs.networkx." if self.module == "dbfs_networkx_info" else f"{self.module}."
            self.strings = {name.rpartition(".")[2] for name in self.house.gone if name.startswith(place)}
        found = self.generic_visit(node)
        self.strings = set()
        return found

    def visit_List(self, node: ast.List | ast.Tuple) -> ast.AST:
        node.elts = self.kept(node.elts)
        return node

    def visit_Tuple(self, node: ast.Tuple) -> ast.AST:
        # Within a function a tuple is a value of so many parts.
        return self.generic_visit(node) if self.scope is ast.FunctionDef else self.visit_List(node)

    def visit_Dict(self, node: ast.Dict) -> ast.Dict:
        pairs: list[tuple[ast.expr | None, ast.expr]] = []
        for key, value in zip(node.keys, node.values, strict=True):
            with contextlib.suppress(Gone):
                pairs.append((key and self.visit(key), self.visit(value)))
        node.keys, node.values = [key for key, _ in pairs], [value for _, value in pairs]
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.Subscript:
        # The arguments of a type are no elements that could go alone.
        for each in ast.walk(node):
            if isinstance(each, ast.Name | ast.Attribute):
                self.visit(each)
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        called = node.func
        if isinstance(called, ast.Attribute) and called.attr in self.house.methods:
            of_module = isinstance(called.value, ast.Name) and called.value.id in self.modules
            if not of_module:
                raise Gone
        node.func, node.args = self.visit(node.func), [self.visit(each) for each in node.args]
        keywords = self.kept(node.keywords)
        if len(keywords) < len(node.keywords) and self.scope is not ast.FunctionDef:
            raise Gone
        node.keywords = keywords
        return node

    def visit_If(self, node: ast.If) -> ast.stmt | list[ast.stmt] | None:
        try:
            self.visit(node.test)
            node.body = self.statements(node.body, self.scope)
        except Gone:
            node.body = []
        try:
            node.orelse = self.statements(node.orelse, self.scope)
        except Gone:
            node.orelse = []
        return node if node.body else node.orelse

    def visit_With(self, node: ast.With) -> ast.With | None:
        for item in node.items:
            self.generic_visit(item)
        node.body = self.statements(node.body, self.scope)
        return node if node.body else None

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        node.bases = self.kept(node.bases)
        node.body = self.statements(node.body, ast.ClassDef) or [ast.Pass()]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        lost, used = set(self.lost), _loaded(node.body)
        self.visit(node.args)
        if node.returns is not None:
            self.visit(node.returns)
        try:
            node.body = self.statements(node.body, ast.FunctionDef)
        finally:
            self.lost = lost
        node.decorator_list = self.kept(node.decorator_list)
        for name in used - _loaded(node.body):
            _drop_parameter(node, name)
        return node


def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def _methods(folders: list[Path]) -> set[str]:
    """Return the public methods of graphs and results that the classes of some folders have."""
    files = [file for folder in folders for file in folder.rglob("*.py")]
    classes = [node for file in files for node in _tree(file).body if isinstance(node, ast.ClassDef)]
    parts = [each for each in classes if any(_CLASS.search(ast.unparse(base)) for base in each.bases)]
    named = {node.name for each in parts for node in each.body if isinstance(node, ast.FunctionDef)}
    return {name for name in named if not name.startswith("_")}


def _defined(node: ast.stmt) -> set[str]:
    """Return the names that a definition or an assignment defines; none of other statements."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}


def _loaded(body: list[ast.stmt]) -> set[str]:
    return {each.id for node in body for each in ast.walk(node) if isinstance(each, ast.Name)}


def _drop_parameter(node: ast.FunctionDef, name: str) -> None:
    """Drop a keyword parameter that is used no more, and the option of a command that gives it."""
    taken = node.args
    pairs = [pair for pair in zip(taken.kwonlyargs, taken.kw_defaults, strict=True) if pair[0].arg != name]
    taken.kwonlyargs, taken.kw_defaults = [each for each, _ in pairs], [default for _, default in pairs]
    option = f"--{name.replace('_', '-')}"
    given = [each for each in node.decorator_list if isinstance(each, ast.Call) and option in map(_value, each.args)]
    if given:
        node.decorator_list = [each for each in node.decorator_list if each not in given]
        taken.args = [each for each in taken.args if each.arg != name]


def _value(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else None
