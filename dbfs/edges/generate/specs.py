"""The table of generators, and specs such as ``kronecker:scale=18``, which name a generator and its parameters.

In comes a spec, from a command line or a call of ``load``; out goes the generator's EdgeList.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate.corpus import corpus
from dbfs.edges.generate.geometric import geometric
from dbfs.edges.generate.kronecker import kronecker
from dbfs.edges.generate.lattice import grid2d, grid3d
from dbfs.edges.generate.rmat import rmat
from dbfs.edges.generate.shapes import complete, path, random_tree, star, tree
from dbfs.edges.generate.uniform import uniform
from dbfs.errors import InvalidOptionError
from dbfs_workers.base.text import did_you_mean


@dataclass(frozen=True)
class Generator:
    """A generator that specs can name.

    Attributes:
        make: the function; a spec has its name and its parameters (int, float, bool or str).
        summary: one line on its graphs.
        example: a spec of it.
    """

    make: Callable[..., EdgeList]
    summary: str
    example: str

    @property
    def name(self) -> str:
        """The word before a spec's colon."""
        return self.make.__name__

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters by name."""
        return dict(signature(self.make).parameters)

    @property
    def usage(self) -> str:
        """The parameters in messages: ``scale, edgefactor=16, [n]``."""
        return ", ".join(_usage(parameter) for parameter in self.parameters.values())


# Specs and help read this table: a new generator needs only a line here.
GENERATORS = (
    Generator(kronecker, "Graph500's Kronecker graph, 2^scale vertices", "kronecker:scale=18"),
    Generator(rmat, "R-MAT graph, 2^scale vertices", "rmat:scale=18,a=0.45,b=0.15,c=0.15"),
    Generator(uniform, "m edges between uniform random vertices", "uniform:n=100000,m=1600000"),
    Generator(grid2d, "square lattice, side^2 vertices", "grid2d:side=1000"),
    Generator(grid3d, "cubic lattice, side^3 vertices", "grid3d:side=100"),
    Generator(path, "path of n vertices", "path:n=1000"),
    Generator(star, "a hub and n-1 others", "star:n=1000"),
    Generator(complete, "complete graph of n vertices", "complete:n=1000"),
    Generator(tree, "complete k-ary tree of n vertices", "tree:n=1000,arity=3"),
    Generator(random_tree, "random recursive tree of n vertices", "random_tree:n=1000"),
    Generator(geometric, "n points in a square, joined within a radius", "geometric:n=100000,radius=0.005"),
    Generator(corpus, "stand-in for a graph of Merrill 2012", "corpus:europe.osm,scale-down=64"),
)
_BY_NAME = {generator.name: generator for generator in GENERATORS}

# At most two digits of exponent: 1e999999999 would fill the memory before its range is checked.
_INTEGER = re.compile(r"(-?[0-9]{1,20}(?:_[0-9]{1,20}){0,9})(?:[eE]([0-9]{1,2}))?")
_NUMBER = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,2})?")
_SPEC_LIKE = re.compile(r"[A-Za-z_]\w+:(\w+=.*)?", re.ASCII)
_BOOLEANS = {"true": True, "false": False}


def is_spec(text: str) -> bool:
    """Return whether a text names a generator rather than a file.

    True for a known generator's name, alone or before a colon. Also true for any text of the form ``word:`` or
    ``word:key=value``, so that a misspelt generator is reported as such. False for paths and URLs
    (``s3://bucket/x``, ``C:\\x``).
    """
    name, _, rest = text.partition(":")
    known = name in _BY_NAME and not rest.startswith(("/", "\\"))
    return known or _SPEC_LIKE.fullmatch(text) is not None


def parse(spec: str) -> EdgeList:
    """Return the edges of a spec: a generator's name, a colon, and ``parameter=value`` pairs separated by commas.

    Integers may be written 1_000_000 or 1e6, and booleans are true and false. Hyphens in a parameter's name count as
    underscores. If a generator's first parameter is a name, its value may stand alone: ``corpus:cage15``.

    Raises:
        InvalidOptionError: the generator is unknown; a parameter is unknown, missing, repeated or malformed; or a value
            is out of range. The message has the choices.
    """
    name, _, rest = spec.partition(":")
    generator = _BY_NAME.get(name)
    if generator is None:
        hint = did_you_mean(name, _BY_NAME)
        raise InvalidOptionError(f"unknown generator {name!r}{hint} The generators: {', '.join(_BY_NAME)}")
    parameters = generator.parameters
    first = next(iter(parameters))
    values: dict[str, int | float | bool | str] = {}
    for position, item in enumerate(rest.split(",") if rest else ()):
        key, equals, text = item.partition("=")
        if not equals and position == 0 and parameters[first].annotation is str:
            key, text = first, item
        elif not equals:
            raise InvalidOptionError(f"{name}: {item!r} is not parameter=value; parameters: {generator.usage}")
        key = key.replace("-", "_")
        if key not in parameters:
            hint = did_you_mean(key, parameters)
            raise InvalidOptionError(f"{name}: unknown parameter {key!r}{hint} Parameters: {generator.usage}")
        if key in values:
            raise InvalidOptionError(f"{name}: {key} is given twice; parameters: {generator.usage}")
        convert, form = _PARSERS[parameters[key].annotation]
        value = convert(text)
        if value is None:
            raise InvalidOptionError(f"{name}: {key} must be {form}, not {text!r}")
        values[key] = value
    missing = [
        key for key, parameter in parameters.items() if parameter.default is Parameter.empty and key not in values
    ]
    if missing:
        raise InvalidOptionError(f"{name}: {' and '.join(missing)} not given; parameters: {generator.usage}")
    return generator.make(**values)


def describe() -> str:
    """Return help on all generators, two lines each: an example with a summary, and the parameters with defaults."""
    width = max(len(generator.example) for generator in GENERATORS)
    return "\n".join(
        f"{generator.example:{width}}  {generator.summary}\n{'':{width}}  parameters: {generator.usage}"
        for generator in GENERATORS
    )


def _integer(text: str) -> int | None:
    match = _INTEGER.fullmatch(text)
    return int(match[1] + "0" * int(match[2] or 0)) if match else None


_WHOLE = (_integer, "an integer such as 1000, 1_000 or 1e3")
_PARSERS: dict[Any, tuple[Callable[[str], int | float | bool | str | None], str]] = {
    int: _WHOLE,
    int | None: _WHOLE,
    float: (lambda text: float(text) if _NUMBER.fullmatch(text) else None, "a number such as 0.25 or 1e-3"),
    bool: (lambda text: _BOOLEANS.get(text.lower()), "true or false"),
    str: (str, "a text"),
}
"""By a parameter's type: what makes a value of its text, None if the text has another form; and that form."""


def _usage(parameter: Parameter) -> str:
    if parameter.default is Parameter.empty:
        return parameter.name
    if parameter.default is None:
        return f"[{parameter.name}]"
    return f"{parameter.name}={str(parameter.default).lower()}"
