"""The option ``order`` of ``load``. ``auto`` takes an order only where its build pays within the traversals to come.

The graph is built as given and traversed. Its data stay, or make way for a second build in the order that pays.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, Final

import distributed

from dbfs.base.integers import whole_count
from dbfs.base.records import GraphRecord
from dbfs.building.build import AUTO, ORDERS, BuildOptions, BuiltGraph
from dbfs.building.builder import BY_DISTANCE
from dbfs.building.built_before import BuiltEdges
from dbfs.cluster.gang import Gang, release
from dbfs.edges.edge_list import EdgeList
from dbfs.errors import GraphTooLargeError, InvalidOptionError, NoRoomForLabelsError
from dbfs.graph.counts import GraphCounts
from dbfs.graph.degrees import hub
from dbfs.graph.load import Building, LoadOption
from dbfs.graph.nearness import near, traverse_from

logger = logging.getLogger(__name__)

# A graph has hubs if its largest degree is over both: a number, and so many times the mean.
_HUB_DEGREE, _HUB_TIMES_MEAN = 256, 16
# A deep graph has more levels.
_DEEP = 100
# A build by degree took 1.1 to 2 times as long as one in the order given.
_SECOND_BUILD = 2
# By backend and order, the share of a traversal's time that the order gains: docs/decisions/deep-graphs.md.
_GAINS: Final = {("cuda", "degree"): 0.4, ("cpu", "degree"): 0.3, ("cpu", BY_DISTANCE): 0.05}


class Order(LoadOption):
    """The options ``order`` and ``traversals`` of ``load``.

    Attributes:
        name: the order to build in. For ``auto`` None until the graph was traversed.

    Raise ``InvalidOptionError`` or ``InvalidOptionTypeError`` for options that do not go together.
    """

    def __init__(self, order: str | None, traversals: int | None, room: int) -> None:
        if order not in (None, *ORDERS, AUTO):
            raise InvalidOptionError(f"unknown order {order!r}; choose one of {', '.join((*ORDERS, AUTO))}")
        if order == AUTO and traversals is None:
            raise InvalidOptionError(
                "order='auto' needs traversals= (--traversals), the number of traversals to expect"
            )
        if order != AUTO and traversals is not None:
            raise InvalidOptionError(f"traversals={traversals!r} is for order='auto' only, not for order={order!r}")
        if order == AUTO and room:
            raise InvalidOptionError("room= does not go with order='auto': new vertices have no place in an order")
        self.name = None if order == AUTO else order
        self._traversals = 0 if traversals is None else whole_count(traversals, "traversals", 1)

    def take_edges(self, edges: EdgeList, *, shared: bool) -> EdgeList:
        if self._traversals and isinstance(edges, BuiltEdges):
            raise InvalidOptionError(f"order='auto' is for edges to build; {edges.name} was built: leave out order=")
        return edges

    def built_again(self, built: BuiltGraph, building: Building[Any], options: BuildOptions) -> BuiltGraph:
        """See ``LoadOption``. An order that does not fit the workers is left out."""
        if not self._traversals:
            return built
        self.name, by = "given", list[distributed.Future]()
        try:
            with building.graph(built, options) as graph:
                if graph.n:
                    # The first of two may compile kernels.
                    cold = traverse_from(graph, start := hub(graph))
                    cold.release()
                    first = traverse_from(graph, start)
                    seconds = min(cold.seconds, first.seconds)
                    self.name, why = choose(graph, first.depth, seconds, built.seconds, self._traversals)
                    logger.info("%s: order %s, since %s", graph.name, self.name, why)
                    if self.name == BY_DISTANCE:
                        by = near(graph, first)
                    else:
                        first.release()
        except NoRoomForLabelsError as error:
            release(by)
            logger.info("%s: order given, since it was not traversed: %s", building.edges.name, error)
            self.name = "given"
        except BaseException:
            release([*built.futures, *by])
            raise
        if self.name == "given":
            return built
        release(built.futures)
        try:
            return building.build(replace(options, order=self.name), by)
        except GraphTooLargeError as error:
            logger.info("%s: order given after all: %s", building.edges.name, error)
            self.name = "given"
            return building.build(options)

    def add_data(self, record: GraphRecord, gang: Gang) -> tuple[GraphRecord, list[distributed.Future]]:
        return replace(record, order_name=self.name or ("given" if record.order_key is None else "kept")), []


def choose(graph: GraphCounts, depth: int, seconds: float, build: float, traversals: int) -> tuple[str, str]:
    """Return the order that pays, else ``given``; and why, a clause.

    Args:
        graph: the graph in the order given; it must not be empty.
        depth, seconds: largest distance and seconds of a traversal from its hub.
        build: seconds of its build.
        traversals: number of traversals to expect.
    """
    hubs = graph.max_degree > max(_HUB_DEGREE, _HUB_TIMES_MEAN * graph.m / graph.n)
    order = "degree" if hubs else BY_DISTANCE
    share = _GAINS.get((graph.backend, order), 0.0)
    if not hubs and (depth <= _DEEP or not share):
        return "given", f"no order helps a graph of {depth:,} levels whose largest degree is {graph.max_degree:,}"
    gained, second = traversals * share * seconds, _SECOND_BUILD * build
    return (
        order if gained > second else "given",
        f"order {order} would save {gained:.3g} s of {traversals:,} traversals of {1e3 * seconds:.3g} ms, and a second "
        f"build takes up to {second:.3g} s",
    )
