"""The edges of a saved graph, which ``load`` takes: as they were saved if it can, else as the edges of a new build."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from dbfs.building.builder import BuildOptions, BuildSize, BuiltGraph
from dbfs.building.built_before import BuiltEdges
from dbfs.building.memory import Estimate
from dbfs.cluster.gang import Gang
from dbfs.edges.edge_list import EdgeList, IdKind
from dbfs.edges.readers.folders import FolderReader
from dbfs.edges.readers.options import ReadOptions
from dbfs.edges.readers.source import explained, require_listed
from dbfs.edges.tables.attributes import require_there
from dbfs.errors import InvalidOptionError
from dbfs.features.saved.building import SavedLoad, as_first_built, estimate_as_saved, is_as_saved, layout, restriping
from dbfs.features.saved.reader import SavedAttributes, SavedFiles
from dbfs.graph.load import LoadOption
from dbfs_workers.base.folder import Folder
from dbfs_workers.features.saved import manifest as manifests
from dbfs_workers.features.saved.manifest import RankColumns, SavedColumn, SavedColumns
from dbfs_workers.ids.table import INTEGER

SUFFIX: Final = ".dbfs"
"""End of the name of a saved graph in a store, where a look at a folder costs a request."""


@dataclass(frozen=True)
class SavedEdges(SavedFiles, BuiltEdges):
    """The edges of a saved graph."""

    def of_rows(self) -> SavedEdges:
        """Return the edges of the partitions, whether edges were kept or not."""
        ranks = tuple(replace(rank, edges=None) for rank in self.manifest.ranks)
        manifest = replace(self.manifest, ranks=ranks)
        return replace(self, manifest=manifest, m=manifest.m, mirrored=not self.directed)

    def taking(self, edges: Sequence[SavedColumn], vertices: Sequence[SavedColumn]) -> SavedEdges:
        """Return the edges of the graph with these of its columns alone."""
        from dbfs_workers.features.saved.columns import schema_of

        saved = self.manifest.columns
        if saved is None:
            return self
        ranks = tuple(
            RankColumns(*((each.out, each.into) if edges else (None, None)), each.vertices if vertices else None)
            for each in saved.ranks
        )
        columns = SavedColumns(tuple(edges), tuple(vertices), ranks) if edges or vertices else None
        found = replace(self, manifest=replace(self.manifest, columns=columns), attributes=None)
        return replace(found, attributes=SavedAttributes(schema_of(edges), found.of_rows())) if edges else found

    def keeping(self, columns: Sequence[str]) -> SavedEdges:
        """See ``EdgeList``; other columns of edges are left out."""
        saved = self.manifest.columns
        there = {column.name: column for column in (() if saved is None else saved.edges)}
        require_there(columns, [*there], self.name)
        return self.taking([there[name] for name in columns], () if saved is None else saved.vertices)

    @property
    def vertex_columns(self) -> Sequence[str]:
        return () if self.manifest.columns is None else [column.name for column in self.manifest.columns.vertices]

    def without_vertex_columns(self) -> SavedEdges:
        return self if self.manifest.columns is None else self.taking(self.manifest.columns.edges, ())

    def settled(self, options: BuildOptions) -> BuildOptions:
        return layout(self, options)

    def as_it_was(self, gang: Gang, options: BuildOptions, backend: str) -> SavedLoad | None:
        return SavedLoad(self, gang, options, backend) if is_as_saved(self, gang.p, options) else None

    def estimate_as_it_was(self, size: BuildSize, backend: str) -> Estimate | None:
        as_saved = is_as_saved(self, size.stripe.p, size.options)
        return estimate_as_saved(self, backend, size.memory, hosts=size.hosts) if as_saved else None

    def during_build(self, gang: Gang) -> AbstractContextManager[None]:
        return restriping(gang)

    def as_first_built(self, built: BuiltGraph, gang: Gang, options: BuildOptions) -> BuiltGraph:
        """See ``BuiltEdges``; errors as for ``load_ids``."""
        return as_first_built(built, self, gang, options)


class SavedFolders(FolderReader):
    """Opens the folders of saved graphs."""

    def open(self, path: str | os.PathLike[str], options: ReadOptions) -> EdgeList | None:
        """See ``FolderReader``. Errors as of ``saved_folder`` and ``open_saved``."""
        folder = saved_folder(path)
        return None if folder is None else open_saved(folder, options)


@dataclass(frozen=True)
class MappedFiles(LoadOption):
    """Whether the ranks map the files of a saved graph, or copy them.

    Attributes:
        mapped: None to map the files, unless they are in a store or other programs may use the cluster.
    """

    mapped: bool | None

    def take_edges(self, edges: EdgeList, *, shared: bool) -> EdgeList:
        """See ``LoadOption``; edges that are no saved graph stay as they are."""
        if not isinstance(edges, SavedEdges):
            if self.mapped is not None:
                raise InvalidOptionError(f"mapped= is for saved graphs; {edges.name} is none")
            return edges
        if self.mapped and not edges.folder.local:
            raise InvalidOptionError(f"mapped=True is for files on a disk; {edges.name} is in a store")
        chosen = edges.folder.local and not shared if self.mapped is None else self.mapped
        found = replace(edges, folder=replace(edges.folder, mapped=chosen))
        columns = edges.manifest.columns
        return found if columns is None else found.taking(columns.edges, columns.vertices)


def saved_folder(path: str | os.PathLike[str]) -> Folder | None:
    """Return the folder of a saved graph at a path, which may be that of the manifest; None if there is none.

    Of URLs only those are looked at that end in ``.dbfs``, in the manifest's name, or in a name without a suffix.

    Raises:
        MissingFileError: the folder has files of a saved graph and no manifest.
        InvalidOptionError: the configuration does not allow the URL's scheme.
        FormatError, UnreadableFileError: the folder can't be read.
    """
    name = os.fsdecode(path)
    by_manifest = name.endswith(f"/{manifests.NAME}")
    folder = Folder.at(name.removesuffix(f"/{manifests.NAME}"))
    if folder.local:
        with explained(folder.path, None):
            if not Path(folder.path).is_dir():
                return None
    else:
        last = folder.path.rpartition("/")[2]
        if not (by_manifest or last.endswith(SUFFIX) or "." not in last):
            return None
        require_listed(folder.path)
    names = folder.names()
    if manifests.NAME in names:
        return folder
    if by_manifest or any(map(manifests.is_ours, names)):
        raise manifests.missing(folder)
    return None


def open_saved(folder: Folder, options: ReadOptions) -> SavedEdges:
    """Open a saved graph: read its manifest.

    Raises:
        InvalidOptionError: an option is given, or the configuration does not allow the URL's scheme.
        FormatError, MissingFileError, UnreadableFileError: the manifest is damaged, no manifest, or can't be read.
    """
    if options.given:
        raise InvalidOptionError(f"{options.given[0]}= is for files of edges; {folder.path} is a saved graph")
    require_listed(folder.path)
    manifest = manifests.read(folder)
    # The kept edges of a graph whose file listed each edge in both directions are mirrored, as its partitions are.
    mirrored = not manifest.directed and (not manifest.keeps_edges or manifest.input_edges == manifest.m)
    m = manifest.input_edges if manifest.keeps_edges else manifest.m
    facts = (manifest.n, m, manifest.directed)
    ids = manifest.ids
    kinds = tuple[IdKind, ...]("integer" if column == INTEGER else "string" for column in ids.columns)
    named: dict[str, Any] = {"mirrored": mirrored, "first_id": ids.first_id, "id_kinds": kinds}
    found, columns = SavedEdges(folder.path, *facts, folder, manifest, **named), manifest.columns
    return found if columns is None else found.taking(columns.edges, columns.vertices)
