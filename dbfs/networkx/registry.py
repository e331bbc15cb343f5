"""The functions that the backend offers to NetworkX, and what each needs of its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

NO_WEIGHTS: Final = "dbfs counts edges here, and adds up no weights; the functions of Dijkstra's algorithm do"
SORTED: Final = "dbfs takes neighbours in the graph's order"
NO_TRAVERSAL: Final = "the distances are given, so that nothing is left to traverse"


@dataclass(frozen=True)
class Offer:
    """One function of the backend.

    Attributes:
        function: takes the arguments of the function of that name in NetworkX, with a ``BackendGraph`` as the graph.
        signature: parameters of ``function``.
        refused: parameters that must keep their default, each with the reason.
        single: parameters any of which leaves one traversal to make; None if the function always makes few.
        check: of a function that makes a graph: returns why it can't take the arguments; None if it can.
        weighed: of a function that takes weights by name: the same.
        doubt: of such a function: returns why NetworkX should run it itself; None if not.
    """

    function: Callable[..., Any]
    signature: inspect.Signature
    refused: Mapping[str, str]
    single: tuple[str, ...] | None
    check: Callable[[Mapping[str, Any]], str | None] | None
    weighed: Callable[[Mapping[str, Any]], str | None] | None
    doubt: Callable[[Mapping[str, Any]], str | None] | None

    def refusal(self, arguments: Mapping[str, Any]) -> str | None:
        """Return why the function can't take these arguments; None if it can."""
        for name, reason in self.refused.items():
            default = self.signature.parameters[name].default
            if name in arguments and arguments[name] is not default:
                return f"{name}={arguments[name]!r}: {reason}"
        check = self.check or self.weighed
        return check(arguments) if check and arguments else None

    def many(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether the function makes a traversal from many nodes, given these arguments."""
        return self.single is not None and all(arguments.get(name) is None for name in self.single)


OFFERS: Final[dict[str, Offer]] = {}
"""The functions by name. Each module of a family adds its own."""


def offered(
    *,
    refused: Mapping[str, str] | None = None,
    single: tuple[str, ...] | None = None,
    check: Callable[[Mapping[str, Any]], str | None] | None = None,
    weighed: Callable[[Mapping[str, Any]], str | None] | None = None,
    doubt: Callable[[Mapping[str, Any]], str | None] | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Offer a function to NetworkX under its own name; the arguments are those of ``Offer``."""

    def offer(function: Callable[P, R]) -> Callable[P, R]:
        known = inspect.signature(function)
        OFFERS[function.__name__] = Offer(function, known, refused or {}, single, check, weighed, doubt)
        return function

    return offer
