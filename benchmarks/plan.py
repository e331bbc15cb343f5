"""Benchmark plans: YAML files that list the graphs to measure, the numbers of ranks, and the repetitions.

A plan is a frozen dataclass. Each field has the check of its value: ``Annotated[int, count]``. A text after the check
is the key in the file, otherwise the field's name. ``configs/bench`` has plans, such as ``corpus-small.yaml``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import dask.system
import yaml

from dbfs import config, lab
from dbfs.assembly import BuildOptions
from dbfs.base.records import BACKENDS
from dbfs.building.build import ORDERS
from dbfs.edges import generate
from dbfs.errors import InvalidOptionError, MissingFileError, PlanError
from dbfs_workers.base.spec import DIRECTIONS

_PLANS = Path(__file__).parents[1] / "configs" / "bench"

Plan = TypeVar("Plan")
Check = Callable[[Any, str], Any]
"""Returns the value of a key, given the value in the file and the place there, or raises a ``PlanError``."""


def find(benchmark: str, plan: str) -> Path:
    """Return the file of a plan, given by the short name of one of dbfs's own plans (``small``) or by its path.

    Raises:
        MissingFileError: there is no such file; the message lists the names of dbfs's own plans.
    """
    own = _PLANS / f"{benchmark}-{plan}.yaml"
    if own.is_file():
        return own
    path = Path(plan)
    if not path.is_file():
        raise MissingFileError(f"plan {plan!r}: no such file, and none of dbfs's own ({', '.join(names(benchmark))})")
    return path


def names(benchmark: str) -> list[str]:
    """Return the short names of dbfs's own plans of a benchmark, those in ``configs/bench``."""
    return sorted(file.stem.removeprefix(f"{benchmark}-") for file in _PLANS.glob(f"{benchmark}-*.yaml"))


def read(plan: type[Plan], path: Path) -> Plan:
    """Read a plan from a YAML file.

    Raises:
        PlanError: the file is not a plan; the message names the key and what would be right.
    """
    try:
        return parse(plan, yaml.load(path.read_text(encoding="utf-8"), config.UniqueKeyLoader), str(path))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PlanError(f"{path}: not YAML: {' '.join(str(error).split())}") from error


def parse(plan: type[Plan], value: object, where: str) -> Plan:
    """Return a plan, or a part of one, of a mapping; errors as for ``read``, which begin with ``where``."""
    if not isinstance(value, Mapping):
        raise PlanError(f"{where}: must be a mapping of keys to values, not {value!r}")
    hints = get_type_hints(plan, include_extras=True)
    # A dataclass, which mypy can't say of a type variable.
    keys = {field: hints[field.name].__metadata__ for field in fields(plan)}  # type: ignore[arg-type]
    known = [marks[1] if len(marks) > 1 else field.name for field, marks in keys.items()]
    for key in value:
        if key not in known:
            raise PlanError(f"{where}: unknown key {key!r}; the keys are {', '.join(known)}")
    found = {}
    for key, (field, (check, *_)) in zip(known, keys.items(), strict=True):
        if key in value or field.default is MISSING:
            if value.get(key) is None:
                raise PlanError(f"{where}: {key} is missing")
            found[field.name] = check(value[key], f"{where}: {key}")
    try:
        return plan(**found)
    except PlanError as error:
        raise PlanError(f"{where}: {error}") from None


def _right(value: Any, where: str, right: str, fits: object) -> Any:
    if not fits:
        raise PlanError(f"{where} must be {right}, not {value!r}")
    return value


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _items(value: Any, where: str, right: str, fits: Callable[[Any], bool], different: str = "") -> tuple[Any, ...]:
    """Check a list of different items; ``different`` says what would be right if two are the same."""
    _right(value, where, "a list of at least one item", isinstance(value, list) and value)
    _right(value, where, right, all(map(fits, value)))
    return tuple(_right(value, where, different or right, len(set(value)) == len(value)))


def count(value: Any, where: str) -> Any:
    """Take a whole number above 0."""
    return _right(value, where, "a whole number above 0", _is_count(value))


def counts(value: Any, where: str) -> Any:
    """Take a list of different whole numbers above 0; return them in ascending order."""
    right = "a list of whole numbers above 0, such as [1, 2, 4]"
    return tuple(sorted(_items(value, where, right, _is_count, "a list of different numbers")))


def ranks(value: Any, where: str) -> Any:
    """Take ``counts``, or the text ``cores``: the powers of two below this machine's cores, these, and twice as many.

    Counted are the cores that this process may use: an affinity mask and a container's share of time are respected.
    """
    if value != "cores":
        return counts(value, where)
    cores = dask.system.cpu_count()
    return (*(2**k for k in range((cores - 1).bit_length())), cores, 2 * cores)


def flag(value: Any, where: str) -> Any:
    """Take true or false."""
    return _right(value, where, "true or false", isinstance(value, bool))


def text(value: Any, where: str) -> Any:
    """Take a text that is not empty."""
    return _right(value, where, "a text", _is_text(value))


def texts(value: Any, where: str) -> Any:
    """Take a list of different texts."""
    return _items(value, where, "a list of different texts", _is_text)


def one_of(choices: Sequence[str]) -> Check:
    """Return the check of one of ``choices``."""
    return lambda value, where: _right(value, where, f"one of {', '.join(choices)}", value in choices)


def some_of(choices: Sequence[str]) -> Check:
    """Return the check of a list of different members of ``choices``."""
    right = f"a list of some of {', '.join(choices)}"
    return lambda value, where: _items(value, where, right, lambda item: item in choices)


def strategies(value: Any, where: str) -> Any:
    """Take a list of strategies with their options."""
    for at, strategy in enumerate(texts(value, where)):
        try:
            lab.parse(strategy)
        except InvalidOptionError as error:
            raise PlanError(f"{where}[{at}]: {error}") from error
    return tuple(value)


def graph(value: Any, where: str) -> Any:
    """Take a generator's spec, a file's path, or a URL."""
    _right(value, where, "a generator's spec or a file", isinstance(value, str))
    if generate.is_spec(value):
        try:
            generate.parse(value)
        except InvalidOptionError as error:
            raise PlanError(f"{where}: {error}") from error
    elif "://" not in value and not Path(value).is_file():
        raise PlanError(f"{where}: {value!r} is neither a generator's spec nor a file that exists")
    return value


def graphs(value: Any, where: str) -> Any:
    """Take a list of graphs; see ``graph``."""
    _right(value, where, "a list of at least one item", isinstance(value, list) and value)
    return tuple(graph(item, f"{where}[{at}]") for at, item in enumerate(value))


def graphs_by_ranks(value: Any, where: str) -> Any:
    """Take a mapping of numbers of ranks to graphs; return it in ascending order."""
    right = "a mapping of ranks to graphs, such as {1: kronecker:scale=16, 2: kronecker:scale=17}"
    _right(value, where, right, isinstance(value, Mapping) and value and all(map(_is_count, value)))
    return {ranks: graph(value[ranks], f"{where}.{ranks}") for ranks in sorted(value)}


def parts(plan: type) -> Check:
    """Return the check of a list of mappings, each a part of a plan."""

    def check(value: Any, where: str) -> Any:
        _right(value, where, "a list", isinstance(value, list))
        return tuple(parse(plan, item, f"{where}[{at}]") for at, item in enumerate(value))

    return check


def layout(value: Any, where: str) -> Any:
    """Take a layout, as ``dbfs.load`` does."""
    try:
        return BuildOptions(layout=text(value, where)).layout
    except InvalidOptionError as error:
        raise PlanError(f"{where}: {error}") from error


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of plans over many graphs.

    Attributes:
        sources: number of random sources of each graph.
        repeats: number of traversals from each source; their median counts.
        directions: directions of the levels; each is measured.
        strategies: strategies with their options, as ``Graph.bfs`` takes them, measured beside the engine's levels.
        order, in_edges, backend, layout: as in ``dbfs.load``; the backend also of a local cluster.
    """

    sources: Annotated[int, count] = 5
    repeats: Annotated[int, count] = 3
    directions: Annotated[tuple[str, ...], some_of(DIRECTIONS)] = ("auto",)
    strategies: Annotated[tuple[str, ...], strategies] = ()
    order: Annotated[str, one_of(ORDERS)] = "given"
    in_edges: Annotated[bool, flag] = False
    backend: Annotated[str, one_of(BACKENDS)] = "auto"
    layout: Annotated[str, layout] = "1d"
