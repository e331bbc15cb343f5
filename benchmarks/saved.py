"""Results of the benchmarks over many graphs as JSON, and back, so that another machine can draw the figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.corpus import CorpusReport, Frontier
from benchmarks.gpu import revision
from benchmarks.lab_results import BENCHMARK as LAB
from benchmarks.lab_results import LabReport
from benchmarks.rates import Rates
from benchmarks.scaling import ScalingPoint
from dbfs.errors import FormatError, MissingFileError

Results = CorpusReport | LabReport | list[ScalingPoint]


def to_json(results: CorpusReport | Sequence[ScalingPoint]) -> dict[str, Any]:
    """Return results as a JSON object, with the benchmark's name and the git revision."""
    if isinstance(results, CorpusReport):
        return {"benchmark": "corpus", "revision": revision(), **asdict(results)}
    return {"benchmark": "scaling", "revision": revision(), "points": [asdict(point) for point in results]}


def read(path: Path) -> Results:
    """Read the results that ``dbfs bench corpus``, ``scaling`` or ``lab`` saved.

    Raises:
        MissingFileError: there is no such file.
        FormatError: the file is not the JSON of those commands.
    """
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        if saved["benchmark"] == "corpus":
            frontiers = (
                Frontier(one["graph"], one["source"], tuple(one["vertices"]), tuple(one["edges"]))
                for one in saved["frontiers"]
            )
            return CorpusReport(tuple(Rates(**one) for one in saved["rates"]), tuple(frontiers))
        if saved["benchmark"] == LAB:
            return LabReport.read(path)
        return [ScalingPoint(**{**point, "rates": Rates(**point["rates"])}) for point in saved["points"]]
    except FileNotFoundError:
        raise MissingFileError(f"{path}: no such file") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FormatError(
            f"{path}: not the JSON that dbfs bench corpus, scaling or lab saves ({type(error).__name__}: {error})"
        ) from error
