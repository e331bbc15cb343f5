"""Benchmark plans: YAML files that list the graphs to measure, the numbers of ranks, and the repetitions.

``configs/bench`` has two plans for each benchmark, such as ``corpus-small.yaml`` and ``corpus-full.yaml``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.system
import yaml

from dbfs.building.build import ORDERS
from dbfs.edges import generate
from dbfs.errors import InvalidOptionError, MissingFileError, PlanError
from dbfs.records import BACKENDS
from dbfs_workers.spec import DIRECTIONS

_CORES = "cores"

_PLANS = Path(__file__).parents[1] / "configs" / "bench"


@dataclass(frozen=True)
class Settings:
    """The settings that all plans have.

    Attributes:
        sources: number of random sources of each graph.
        repeats: number of traversals from each source; their median counts.
        directions: directions of the levels; each is measured.
        order: internal order of the vertices.
        in_edges: whether directed graphs keep their in-edges, for bottom-up levels.
        backend: backend of the graphs, and of a local cluster.
    """

    sources: int
    repeats: int
    directions: tuple[str, ...]
    order: str
    in_edges: bool
    backend: str


def cores_and_beyond() -> tuple[int, ...]:
    """Return the powers of two below the number of this machine's cores, that number, and twice that number.

    Counted are the cores that this process may use: an affinity mask and a container's share of time are respected.
    """
    cores = dask.system.cpu_count()
    return (*(2**k for k in range((cores - 1).bit_length())), cores, 2 * cores)


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
        names = sorted(file.stem.removeprefix(f"{benchmark}-") for file in _PLANS.glob(f"{benchmark}-*.yaml"))
        raise MissingFileError(f"plan {plan!r}: no such file, and none of dbfs's own ({', '.join(names)})")
    return path


class Section:
    """A mapping in a plan. Its methods take the keys one by one, and check their values.

    Args:
        value: the mapping.
        where: the file, and the place in it, with which every message begins.

    Raises:
        PlanError: from every method, if a value is wrong; the message names the key and what would be right.
    """

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, Mapping):
            raise PlanError(f"{where}: must be a mapping of keys to values, not {value!r}")
        self._values = dict(value)
        self._where = where
        self._known: list[str] = []

    @classmethod
    def read(cls, path: Path) -> Section:
        """Read a plan's file."""
        try:
            return cls(yaml.load(path.read_text(encoding="utf-8"), _Loader), str(path))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise PlanError(f"{path}: not YAML: {' '.join(str(error).split())}") from error

    def settings(self) -> Settings:
        """Take the keys that all plans have."""
        return Settings(
            sources=self.count("sources", 5),
            repeats=self.count("repeats", 3),
            directions=self.choices("directions", DIRECTIONS, ["auto"]),
            order=self.choice("order", ORDERS, "given"),
            in_edges=self.flag("in_edges", False),
            backend=self.choice("backend", BACKENDS, "auto"),
        )

    def count(self, key: str, default: int | None = None) -> int:
        """Take a whole number above 0."""
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self._wrong(key, "a whole number above 0", value)
        return value

    def counts(self, key: str) -> tuple[int, ...]:
        """Take a list of different whole numbers above 0; return them in ascending order."""
        values = self._list(key, None)
        if not all(isinstance(value, int) and not isinstance(value, bool) and value > 0 for value in values):
            raise self._wrong(key, "a list of whole numbers above 0, such as [1, 2, 4]", values)
        if len(set(values)) < len(values):
            raise self._wrong(key, "a list of different numbers", values)
        return tuple(sorted(values))

    def ranks(self, key: str) -> tuple[int, ...]:
        """Take ``counts``, or the text ``cores`` for numbers of ranks up to this machine's cores and beyond."""
        if self._values.get(key) != _CORES:
            return self.counts(key)
        self._take(key, None)
        return cores_and_beyond()

    def flag(self, key: str, default: bool) -> bool:
        """Take true or false."""
        value = self._take(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false", value)
        return value

    def text(self, key: str) -> str:
        """Take a text that is not empty."""
        value = self._take(key, None)
        if not isinstance(value, str) or not value:
            raise self._wrong(key, "a text", value)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Take a list of different texts."""
        values = self._list(key, None)
        if not all(isinstance(value, str) and value for value in values) or len(set(values)) < len(values):
            raise self._wrong(key, "a list of different texts", values)
        return tuple(values)

    def choice(self, key: str, choices: Sequence[str], default: str) -> str:
        """Take one of ``choices``."""
        value = self._take(key, default)
        if value not in choices:
            raise self._wrong(key, f"one of {', '.join(choices)}", value)
        return str(value)

    def choices(self, key: str, choices: Sequence[str], default: list[str]) -> tuple[str, ...]:
        """Take a list of different members of ``choices``."""
        values = self._list(key, default)
        if not all(value in choices for value in values) or len(set(values)) < len(values):
            raise self._wrong(key, f"a list of some of {', '.join(choices)}", values)
        return tuple(values)

    def graph(self, key: str) -> str:
        """Take a generator's spec, a file's path, or a URL."""
        return self._graph(key, self._take(key, None))

    def graphs(self, key: str) -> tuple[str, ...]:
        """Take a list of graphs; see ``graph``."""
        return tuple(self._graph(f"{key}[{at}]", value) for at, value in enumerate(self._list(key, None)))

    def graphs_by_ranks(self, key: str) -> dict[int, str]:
        """Take a mapping of numbers of ranks to graphs; return it in ascending order."""
        value = self._take(key, None)
        right = "a mapping of ranks to graphs, such as {1: kronecker:scale=16, 2: kronecker:scale=17}"
        if not isinstance(value, Mapping) or not value:
            raise self._wrong(key, right, value)
        if not all(isinstance(ranks, int) and not isinstance(ranks, bool) and ranks > 0 for ranks in value):
            raise self._wrong(key, right, value)
        return {ranks: self._graph(f"{key}.{ranks}", value[ranks]) for ranks in sorted(value)}

    def sections(self, key: str) -> list[Section]:
        """Take a list of mappings; return an empty list if the key is missing."""
        self._known.append(key)
        values = self._values.get(key, [])
        if not isinstance(values, list):
            raise self._wrong(key, "a list", values)
        return [Section(value, f"{self._where}: {key}[{at}]") for at, value in enumerate(values)]

    def end(self) -> None:
        """Refuse keys that no method has taken: they are misspelt."""
        for key in self._values:
            if key not in self._known:
                raise PlanError(f"{self._where}: unknown key {key!r}; the keys are {', '.join(self._known)}")

    def _take(self, key: str, default: object) -> Any:
        self._known.append(key)
        value = self._values.get(key, default)
        if value is None:
            raise PlanError(f"{self._where}: {key} is missing")
        return value

    def _list(self, key: str, default: list[Any] | None) -> list[Any]:
        value = self._take(key, default)
        if not isinstance(value, list) or not value:
            raise self._wrong(key, "a list of at least one item", value)
        return value

    def _graph(self, key: str, value: object) -> str:
        if not isinstance(value, str):
            raise self._wrong(key, "a generator's spec or a file", value)
        if generate.is_spec(value):
            try:
                generate.parse(value)
            except InvalidOptionError as error:
                raise PlanError(f"{self._where}: {key}: {error}") from error
        elif "://" not in value and not Path(value).is_file():
            raise PlanError(f"{self._where}: {key}: {value!r} is neither a generator's spec nor a file that exists")
        return value

    def _wrong(self, key: str, right: str, value: object) -> PlanError:
        return PlanError(f"{self._where}: {key} must be {right}, not {value!r}")


class _Loader(yaml.SafeLoader):
    """YAML loader that refuses a duplicate key; PyYAML's own loader would silently keep the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} appears twice", node.start_mark)
        return super().construct_mapping(node, deep)
