"""Public calls: what a caller hears of an option that a call does not have, and of a value of another type.

Signatures stay as they are written: ``help``, completion and type checkers see the call itself.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from types import NoneType
from typing import Any, Final, TypeVar, cast

import numpy as np

from dbfs.errors import InvalidCallError, InvalidOptionTypeError
from dbfs_workers.base.text import counted

C = TypeVar("C", bound=Callable[..., Any])
T = TypeVar("T")

_WEIGHTS = (
    "a distance is a number of edges here; Graph.sssp(source, weight), path(weight=) and distance(weight=) add up a "
    "column that dbfs.load(edge_columns=) kept. For centralities by weight there is igraph"
)
_DEPTH = "Graph.bfs(source, max_depth=) and Graph.khop(source, k) end at a distance"
_FILTER = "a call goes through all edges of its graph; Graph.where(edges=, vertices=, without=) makes a graph of some"
_WORKERS = "a graph has the workers of dbfs.load(ranks=), and a local cluster those of dbfs.connect(n_workers=)"
_TEXT = "dbfs.from_file(path, sep=, header=, comment=, missing=) says how a text is written; dbfs.load takes its result"

# What other libraries call a thing: its names in dbfs, of which a call may have one, and where the thing is otherwise.
_ELSEWHERE: Final[tuple[tuple[str, tuple[str, ...], str], ...]] = (
    ("weight weights weighted edge_attr edge_weight distance attr lengths length", ("weight",), _WEIGHTS),
    ("k samples n_samples nsamples num_samples", ("sample", "count"), "measures of many sources take sample="),
    (
        "cutoff depth_limit depth maxdepth max_level radius hops max_hops max_distance distance_limit limit k n_hops",
        ("max_depth", "k"),
        _DEPTH,
    ),
    (
        "source sources src start root roots node nodes seeds u v vertex vertices nbunch",
        ("source", "sources", "ids", "id", "vertices"),
        "Graph.bfs(source) traverses from one vertex or from several at once, Graph.bfs_many(sources) from each alone",
    ),
    (
        "target targets dst dest destination goal end to sink",
        ("target", "targets"),
        "Graph.path(source, target) is a path, and Graph.bfs(source, targets=) ends at the targets",
    ),
    ("n_jobs njobs nprocs n_procs processes num_workers workers n_workers ranks", ("ranks", "n_workers"), _WORKERS),
    (
        "threads n_threads nthreads num_threads",
        ("threads_per_worker", "ranks"),
        "the threads are those of the workers: dbfs.connect(threads_per_worker=)",
    ),
    ("gpu gpus use_gpu cuda device", ("backend",), 'dbfs.load(backend="cuda") puts a graph on GPUs'),
    (
        "parents parent pred preds predecessor return_predecessors",
        ("predecessors",),
        "Graph.bfs(source, predecessors=True) keeps predecessors",
    ),
    ("timeout time_limit max_time", ("deadline", "timeout"), "dbfs.deadline of the configuration bounds the call"),
    ("verbose callback show_progress disp tqdm", ("progress",), "the call shows no progress"),
    ("overwrite force exist_ok if_exists", ("replace",), "the call replaces nothing"),
    ("filter exclude where mask query node_filter edge_filter skip ignore without", (), _FILTER),
    (
        "create_using undirected is_directed digraph mode",
        ("directed",),
        "dbfs.load(directed=) says how edges can be crossed",
    ),
    ("delimiter separator sep", ("sep",), _TEXT),
    ("comments comment", ("comment",), _TEXT),
    ("names usecols columns header skiprows", ("header",), _TEXT),
    ("na_values na_filter keep_default_na nulls", ("missing",), _TEXT),
    ("method algorithm algo", ("engine",), "Graph.bfs takes engine=, direction= and strategy="),
    ("random_state rng", ("seed",), "the call draws nothing at random"),
    (
        "asynchronous",
        (),
        "calls return awaitables where their client is distributed.Client(address, asynchronous=True)",
    ),
)

# By an argument's annotation as it is written: the types of its values, and what they are.
_KINDS: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "bool": ((bool, np.bool), "True or False"),
    "bool | None": ((bool, np.bool, NoneType), "True, False or None"),
    "str": ((str,), "a text"),
    "str | None": ((str, NoneType), "a text"),
    "str | os.PathLike[str]": ((str, os.PathLike), "a path"),
    "str | os.PathLike[str] | None": ((str, os.PathLike, NoneType), "a path"),
    "Iterable[Any]": ((Iterable,), "an iterable"),
}

# Names in a message. A local cluster takes 70 options of Dask's.
_MOST_LISTED: Final = 30


def public(call: C) -> C:
    """Decorate a public function, or all public methods of a class, so that a wrong call gets a typed error.

    Raises:
        InvalidCallError: raised by the decorated call for arguments that its signature does not have.
        InvalidOptionTypeError: raised by the decorated call for a value that is no truth value, text or path, where the
            signature says that.
    """
    return cast("C", part_of(call.__qualname__)(call)) if isinstance(call, type) else _checked(call)


def part_of(name: str) -> Callable[[type[T]], type[T]]:
    """Decorate a class as ``public``. It is a part of the public class ``name``, which the errors name.

    What the class has in ``_inner`` is for other modules, and called often: it stays as it is.
    """

    def decorate(part: type[T]) -> type[T]:
        for own, method in list(vars(part).items()):
            # A coroutine function of an asynchronous view passes its arguments to a method that is public itself.
            shown = own == "__init__" or (not own.startswith("_") and own not in getattr(part, "_inner", ()))
            if shown and inspect.isfunction(method) and not inspect.iscoroutinefunction(method):
                method.__qualname__ = f"{name}.{own}"
                setattr(part, own, _checked(method))
        return part

    return decorate


def _checked(function: C) -> C:
    written = {name: str(getattr(kind, "__name__", kind)) for name, kind in function.__annotations__.items()}
    kinds = {name: _KINDS[kind] for name, kind in written.items() if kind in _KINDS and name != "return"}
    parameters = inspect.signature(function).parameters.values()
    unnamed = [parameter.name for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY]
    placed = [(place, name) for place, name in enumerate(unnamed) if name in kinds]

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        for name, (types, words) in kinds.items():
            if name in options and not isinstance(options[name], types):
                raise _of_another_type(name, words, options[name])
        for place, name in placed:
            if place < len(arguments) and not isinstance(arguments[place], kinds[name][0]):
                raise _of_another_type(name, kinds[name][1], arguments[place])
        try:
            return function(*arguments, **options)
        except TypeError:
            # Only a call that fails pays for this. The function's own errors go on as they are.
            wrong = _misfit(function, arguments, options)
            if wrong is None:
                raise
        raise InvalidCallError(wrong)

    return cast("C", call)


def _of_another_type(name: str, words: str, value: Any) -> InvalidOptionTypeError:
    hint = f"; n_workers={value} starts workers on this machine" if name == "address" and type(value) is int else ""
    return InvalidOptionTypeError(f"{name} must be {words}, not {value!r}{hint}")


def _misfit(function: Callable[..., Any], arguments: tuple[Any, ...], options: Mapping[str, Any]) -> str | None:
    """Say what is wrong with the arguments of a call; None if they fit the function's signature."""
    signature = inspect.signature(function)
    try:
        signature.bind(*arguments, **options)
    except TypeError as error:
        reason = str(error)
    else:
        return None
    # The first argument of a method is its object.
    own = 1 if "." in function.__qualname__ else 0
    name = function.__qualname__.removesuffix(".__init__")
    parameters = list(signature.parameters.values())[own:]
    known = [parameter.name for parameter in parameters]
    if unknown := [option for option in options if option not in known]:
        return without_option(name, unknown, known)
    placed = [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    if len(arguments) - own > len(placed):
        others = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
        named = f"; name the others: {_list_of(others)}" if others else ""
        shown = f" ({', '.join(placed)})" if placed else ""
        taken = counted(len(placed), "argument")
        return f"{name}() takes {taken} without a name{shown}, not {len(arguments) - own}{named}"
    return f"{name}(): {reason}; its arguments are {', '.join(known)}"


def without_option(name: str, unknown: Iterable[str], known: Collection[str]) -> str:
    """Say that a call has no such options, and where in dbfs is what their names mean.

    Args:
        name: the call.
        unknown: options that the call does not have.
        known: options that the call has.
    """
    return "; ".join(f"{name}() has no option {option}=: {_meaning(option, known)}" for option in unknown)


def _meaning(option: str, known: Collection[str]) -> str:
    word = _plain(option)
    listed = [entry for entry in _ELSEWHERE if word in map(_plain, entry[0].split())]
    plain = {_plain(name): name for name in known}
    if word in plain:
        return f"it is written {plain[word]}="
    for _, names, _ in listed:
        if here := next((name for name in names if name in known), None):
            return f"it is {here}= here"
    if listed:
        return listed[0][2]
    if near := difflib.get_close_matches(word, plain, 1) or [name for name in plain if len(word) > 2 and word in name]:
        return f"the nearest is {plain[near[0]]}="
    if not known:
        return "it has none"
    return f"its options are {_list_of(known)}" if len(known) <= _MOST_LISTED else "none has a name like that"


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _list_of(names: Iterable[str]) -> str:
    return ", ".join(f"{name}=" for name in names)
