"""The numbering of an edge list's ids on the ranks: a task graph of ``dbfs_workers.building.numbering``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import distributed

from dbfs import config
from dbfs.base.records import GraphIds
from dbfs.cluster.gang import Key, Ref, TaskGraph
from dbfs.edges.edge_list import DistinctIds, from_0_or_1
from dbfs_workers.building import numbering as tasks
from dbfs_workers.building.pieces import GeneratedPiece
from dbfs_workers.serving.queries import table_bytes


@dataclass(frozen=True)
class NumberedEdges:
    """An edge list whose ids are numbered.

    Attributes:
        n, m: number of vertices, and of edges.
        distinct: the distinct ids of all ranks.
        ids: how the ids map to the vertices.
        tables: by rank, futures of the ids' tables, also if the ids are 0..n-1.
        edges: by piece, futures of the edges between vertices.
    """

    n: int
    m: int
    distinct: DistinctIds
    ids: GraphIds
    tables: tuple[distributed.Future, ...]
    edges: list[distributed.Future]


def number_ids(
    pieces: Sequence[Ref | GeneratedPiece],
    p: int,
    name: str,
    token: str,
    submit: Callable[[TaskGraph, list[Key]], dict[Key, distributed.Future]],
    gather: Callable[[list[distributed.Future]], list[Any]],
) -> NumberedEdges:
    """Read the pieces, piece i on rank i % p, and number their ids in ascending order.

    Args:
        pieces: task arguments of the pieces.
        name: the edge list's name.
        token: the end of the tasks' names.
        submit: submits tasks, and keeps the results of some keys.
        gather: waits for results, and fetches them.
    """
    graph, share = TaskGraph(), float(config.get("build.memory-share"))
    ranks, indices = range(p), range(len(pieces))

    def add(rank: int, what: str, place: tuple[int, ...], function: Callable[..., Any], *arguments: Any) -> Ref:
        return graph.add(rank, (f"{what}-{token}", *place), function, *arguments)

    found = [add(rank, "rank-ids", (rank,), tasks.RankIds) for rank in ranks]
    coded = [add(i % p, "read-edges", (i,), tasks.encode_piece, pieces[i], found[i % p], share, name) for i in indices]
    summaries = [add(i % p, "summarise-piece", (i,), tasks.summarise, coded[i]) for i in indices]
    samples = [add(rank, "sample-ids", (rank,), tasks.sample_ids, found[rank], summaries[rank::p], p) for rank in ranks]
    splitters = add(0, "id-splitters", (0,), tasks.choose_splitters, samples, p, name)
    split = [add(rank, "split-ids", (rank,), tasks.split_ids, found[rank], splitters, p) for rank in ranks]
    united, counts = [], []
    for owner in ranks:
        parts = [add(rank, "ids-part", (rank, owner), tasks.select_part, split[rank], owner) for rank in ranks]
        united.append(add(owner, "unite-ids", (owner,), tasks.unite_ids, parts, share, name))
        counts.append(add(owner, "count-ids", (owner,), tasks.count_ids, united[owner]))
    tables = [add(owner, "id-table", (owner,), tasks.make_table, united[owner], counts, owner) for owner in ranks]
    vertices = []
    for rank in ranks:
        places = [add(owner, "id-places", (owner, rank), tasks.select_places, united[owner], rank) for owner in ranks]
        vertices.append(add(rank, "id-vertices", (rank,), tasks.find_vertices, split[rank], places, counts))
    edges = [add(i % p, "number-edges", (i,), tasks.make_vertices, coded[i], vertices[i % p]) for i in indices]
    byte_counts = [add(owner, "id-bytes", (owner,), table_bytes, tables[owner]) for owner in ranks]
    refs = [splitters, *counts, *byte_counts, *tables, *edges]
    futures = submit(graph, [ref.key for ref in refs])
    made = [futures[ref.key] for ref in refs]
    chosen, *found_by_owner = gather(made[: 1 + 2 * p])
    counted, nbytes = found_by_owner[:p], found_by_owner[p:]
    n = sum(count for count, _ in counted)
    ends = [each for _, each in counted if each is not None]
    smallest = min((first for first, _ in ends), default=0)
    dense = chosen.id_type.is_integer and (n == 0 or from_0_or_1(n, smallest, max(last for _, last in ends)))
    firsts = tuple(accumulate((count for count, _ in counted[:-1]), initial=0))
    keys = tuple(table.key for table in tables)
    return NumberedEdges(
        n,
        chosen.edges,
        DistinctIds(n, sum(nbytes), dense),
        GraphIds(smallest) if dense else GraphIds(0, chosen.id_type, keys, firsts, chosen.values, n),
        tuple(made[1 + 2 * p : 1 + 3 * p]),
        made[1 + 3 * p :],
    )
