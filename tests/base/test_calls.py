"""Wrong calls: misspelt options, arguments too many, values of another type. The error says what is meant."""

import asyncio
import inspect
import pydoc
from collections.abc import Callable, Iterator
from typing import Any

import distributed
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dbfs
from dbfs import asynchronous
from dbfs.base.calls import public
from dbfs.cluster import local
from dbfs.errors import DbfsError, InvalidCallError, InvalidOptionError, InvalidOptionTypeError
from dbfs.features import batches as analytics
from dbfs.features.components.components import Components
from dbfs.features.living import watch
from dbfs.features.subgraphs import subgraph
from dbfs.graph import tabular
from dbfs.networkx import from_networkx

CLASSES = (
    dbfs.Graph,
    dbfs.BFSResult,
    dbfs.BatchResult,
    dbfs.Run,
    dbfs.Graph500Result,
    Components,
    analytics.EdgeMeasure,
    analytics.Landmarks,
    analytics.NeighbourhoodFunction,
    analytics.VertexMeasure,
    watch.Watch,
    subgraph.Neighbourhood,
    subgraph.Subgraph,
    tabular.Tabular,
)
FUNCTIONS = [getattr(dbfs, name) for name in dbfs.__all__ if inspect.isfunction(getattr(dbfs, name))]


def methods() -> Iterator[Callable[..., Any]]:
    for owner in CLASSES:
        for name, method in inspect.getmembers(owner, inspect.isfunction):
            if not name.startswith("_") and name not in getattr(owner, "_inner", ()):
                yield method


CALLS = [*FUNCTIONS, from_networkx, dbfs.BuildOptions, dbfs.Labels, *methods()]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__qualname__)
def test_every_call_refuses_an_option_that_it_does_not_have(call: Callable[..., Any]) -> None:
    with pytest.raises(InvalidCallError, match=rf"^{call.__qualname__}\(\) has no option xyzzy=: ") as refused:
        call(xyzzy=1)
    # Whoever catches Python's own error, or that of a bad value, catches this one.
    assert isinstance(refused.value, TypeError)
    assert isinstance(refused.value, InvalidOptionError)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__qualname__)
def test_every_call_keeps_its_signature(call: Callable[..., Any]) -> None:
    """Completion, ``help`` and type checkers see no argument of the decorator's."""
    parameters = inspect.signature(call).parameters.values()
    assert call is dbfs.connect or not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    options = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    for option in options:
        with pytest.raises(InvalidCallError, match=rf"has no option {option}x=: the nearest is {option}="):
            call(**{f"{option}x": 1})
        with pytest.raises(InvalidCallError, match=rf"has no option {option.upper()}=: it is written {option}="):
            call(**{option.upper(): 1})


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__qualname__)
def test_every_call_checks_truth_values_texts_and_paths(call: Callable[..., Any]) -> None:
    wrong = {"bool": "False", "bool | None": "False", "str": 5, "str | None": 5, "str | os.PathLike[str]": 5}
    for parameter in inspect.signature(call).parameters.values():
        written = str(getattr(parameter.annotation, "__name__", parameter.annotation))
        if written in wrong:
            with pytest.raises(InvalidOptionTypeError, match=f"^{parameter.name} must be .*, not {wrong[written]!r}"):
                call(**{parameter.name: wrong[written]})


MEANT = {
    "no weights": (
        dbfs.load,
        {"weight": "price"},
        "a number of edges here; Graph.sssp.* path.weight=. .* centralities by weight",
    ),
    "weights of a measure": (dbfs.Graph.diameter, {"weight": "km"}, "centralities by weight there is igraph"),
    "cutoff": (dbfs.Graph.bfs, {"cutoff": 3}, "it is max_depth= here"),
    "limit": (dbfs.Graph.bfs, {"limit": 3}, "it is max_depth= here"),
    "radius": (dbfs.Graph.khop, {"radius": 2}, "it is k= here"),
    "a depth of no use": (dbfs.Graph.diameter, {"cutoff": 2}, r"Graph.bfs\(source, max_depth=\) and Graph.khop"),
    "a cutoff of a measure": (dbfs.Graph.betweenness_centrality, {"cutoff": 9}, "it is max_depth= here"),
    "k of a traversal": (dbfs.Graph.bfs, {"k": 3}, "it is max_depth= here"),
    "a sample": (dbfs.Graph.betweenness_centrality, {"k": 9}, "it is sample= here"),
    "one source": (dbfs.Graph.bfs_many, {"source": 9}, "it is sources= here"),
    "jobs": (dbfs.load, {"n_jobs": 9}, "it is ranks= here"),
    "jobs of a cluster": (dbfs.connect, {"n_jobs": 9}, "it is n_workers= here"),
    "threads": (dbfs.connect, {"nthreads": 9}, "it is threads_per_worker= here"),
    "jobs of a traversal": (dbfs.Graph.bfs, {"nprocs": 9}, r"dbfs.load\(ranks=\)"),
    "filter": (dbfs.Graph.bfs, {"exclude": [1]}, r"Graph.where\(edges=, vertices=, without=\)"),
    "text": (dbfs.load, {"delimiter": ","}, "it is sep= here"),
    "text of a file": (dbfs.from_file, {"delimiter": ","}, "it is sep= here"),
    "parents": (dbfs.Graph.bfs, {"parents": True}, "it is predecessors= here"),
    "a file to replace": (dbfs.Graph.save, {"overwrite": True}, "it is replace= here"),
    "an awaitable": (dbfs.connect, {"asynchronous": True}, r"distributed.Client\(address, asynchronous=True\)"),
    "nothing near": (dbfs.open, {"xyzzy": 1}, "its options are name=, client=, deadline="),
    "no options": (dbfs.BFSResult.release, {"wait": True}, "it has none"),
}


@pytest.mark.parametrize("case", MEANT)
def test_the_words_of_other_libraries_lead_to_the_thing(case: str) -> None:
    call, options, words = MEANT[case]
    (option,) = options
    with pytest.raises(InvalidCallError, match=rf"^{call.__qualname__}\(\) has no option {option}=: .*{words}"):
        call(**options)


def test_help_begins_with_what_a_beginner_needs() -> None:
    text = pydoc.plain(pydoc.render_doc(dbfs))
    places = [text.index(word) for word in ("load(edges)", "connect(n_workers=4)", "``Graph`` has", "PACKAGE CONTENTS")]
    assert places == sorted(places)
    assert places[2] < 600
    assert dbfs.__all__[:3] == ["load", "connect", "Graph"]


def test_several_wrong_options_are_all_named() -> None:
    words = r"^load\(\) has no option weight=: .*; load\(\) has no option Directed=: it is written directed=$"
    with pytest.raises(InvalidCallError, match=words):
        dbfs.load([(0, 1)], weight=1, Directed=True)  # type: ignore[call-arg]


def test_other_wrong_calls() -> None:
    with pytest.raises(InvalidCallError, match=r"^load\(\) takes 1 argument without a name \(edges\), not 2; name"):
        dbfs.load([(0, 1)], 2)  # type: ignore[misc]
    with pytest.raises(InvalidCallError, match=r"^BFSResult.release\(\) takes 0 arguments without a name, not 1$"):
        dbfs.BFSResult.release(None, 2)  # type: ignore[call-arg, arg-type]
    with pytest.raises(
        InvalidCallError, match=r"^Graph.khop\(\): missing .*'k'; its arguments are source, k, each, dead"
    ):
        dbfs.Graph.khop(None, 2)  # type: ignore[call-arg, arg-type]
    with pytest.raises(InvalidCallError, match=r"^kronecker\(\): multiple values for argument 'scale'"):
        dbfs.kronecker(2, scale=3)  # type: ignore[misc]


def test_the_errors_of_the_call_itself_are_left_alone() -> None:
    @public
    def fails(number: int, *, flag: bool = False) -> None:
        raise TypeError(f"{number} {flag}")

    with pytest.raises(TypeError, match="^1 True$") as error:
        fails(1, flag=np.bool(True))  # type: ignore[arg-type]
    assert not isinstance(error.value, DbfsError)


@given(option=st.text("abcdeklmnorstu_", min_size=1, max_size=12).filter(str.isidentifier))
def test_any_misspelt_option_is_refused(option: str) -> None:
    if option in inspect.signature(dbfs.Graph.bfs).parameters:
        return
    with pytest.raises(InvalidCallError, match=rf"^Graph.bfs\(\) has no option {option}=: \w+ \w+"):
        dbfs.Graph.bfs(None, 0, **{option: 1})  # type: ignore[arg-type]


def test_a_local_cluster_is_not_started_for_a_misspelt_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "start", lambda *_: pytest.fail("a cluster was started"))
    for options, words in (
        ({"n_worker": 2}, "the nearest is n_workers="),
        ({"thread_per_worker": 2}, "the nearest is threads_per_worker="),
        ({"memory_limits": "1GB"}, "the nearest is memory_limit="),
        ({"dashboard_adress": ":0"}, "the nearest is dashboard_address="),
        ({"xyzzy": 2}, "none has a name like that"),
        # A nanny's option, for a cluster that has no nannies.
        ({"processes": False, "preload_nanny": []}, "the nearest is preload="),
    ):
        with pytest.raises(InvalidCallError, match=rf"^connect\(\) has no option \w+=: .*{words}"):
            dbfs.connect(**options)
    with pytest.raises(InvalidCallError, match="the nearest is n_workers="):
        dbfs.connect("tcp://127.0.0.1:9", n_worker=2)


def test_the_types_of_what_connect_takes(client: distributed.Client) -> None:
    for options, words in (
        ({"address": 4}, "^address must be a text, not 4; n_workers=4 starts workers on this machine$"),
        ({"address": client}, "^address must be a text, not <LocalClient.*>$"),
        ({"n_workers": "2"}, "n_workers must be an integer, not '2'"),
        ({"n_workers": True}, "n_workers must be an integer, not True"),
        ({"threads_per_worker": 0.5}, "threads_per_worker must be an integer, not 0.5"),
        ({"processes": "no"}, "processes must be True, False or None, not 'no'"),
        ({"backend": 3}, "backend must be a text, not 3"),
    ):
        with pytest.raises(InvalidOptionTypeError, match=words):
            dbfs.connect(**options)  # type: ignore[arg-type]
    for timeout in ([], True, {}):
        with pytest.raises(InvalidOptionError, match="is not a duration"):
            dbfs.connect(timeout=timeout)  # type: ignore[arg-type]


def test_options_of_dasks_cluster_and_of_its_workers_pass() -> None:
    """One of ``LocalCluster``, and one that it hands on to its workers."""
    options: dict[str, Any] = {"silence_logs": 40, "resources": {"GPU": 2}, "dashboard_address": None}
    with dbfs.connect(n_workers=1, processes=False, **options) as client:
        (worker,) = client.cluster.workers.values()
        assert worker.state.total_resources == {"GPU": 2}


async def _wrong(address: str) -> None:
    async with distributed.Client(address, asynchronous=True, set_as_default=False) as client:
        with pytest.raises(InvalidCallError, match=r"^load\(\) has no option rank=: the nearest is ranks="):
            await asynchronous.load([(0, 1)], client=client, rank=2)
        graph = await asynchronous.load([(0, 1), (1, 2)], client=client)
        for name, options, words in (
            ("bfs", {"source": 0, "cutoff": 2}, r"Graph.bfs\(\) has no option cutoff=: it is max_depth= here"),
            ("bfs_many", {"sources": [0], "weight": 2}, r"Graph.bfs_many\(\) has no option weight=: .*path"),
            ("components", {"dedline": 2}, r"Graph.components\(\) has no option dedline=: the nearest is deadline="),
        ):
            with pytest.raises(InvalidCallError, match=words):
                await getattr(graph, name)(**options)
        with pytest.raises(InvalidCallError, match=r"Graph.bfs_stream\(\) has no option cutoff=: it is max_depth="):
            async for _ in graph.bfs_stream([0], cutoff=2):
                pass
        assert (await graph.components(deadline=60)).count == 1
        result = await graph.bfs(0)
        for name in ("update", "to_pandas"):
            with pytest.raises(InvalidCallError, match=rf"BFSResult.{name}\(\) has no option xyzzy=: "):
                await getattr(result, name)(xyzzy=1)
        await graph.unload()


def test_calls_of_an_asynchronous_client(client: distributed.Client) -> None:
    asyncio.run(_wrong(client.scheduler.address))
