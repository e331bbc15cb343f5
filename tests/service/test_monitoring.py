"""The board, the alerts and the scrape configuration of configs/monitoring beside the metrics that are served."""

import json
import os
import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

import dbfs
from dbfs.base.records import WorkerState
from dbfs.cluster.gang import joined_workers
from tests.support.operated import Operated, operated
from tests.support.waiting import eventually

pytestmark = [pytest.mark.full, pytest.mark.alone]
FOLDER = Path(__file__).parents[2] / "configs" / "monitoring"
BOARD: dict[str, Any] = json.loads((FOLDER / "board.json").read_text())
RULES: list[dict[str, Any]] = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"][0]["rules"]
SCRAPES = yaml.safe_load((FOLDER / "scrape.yaml").read_text())["scrape_configs"]
# A name, not the word of a function or of a label.
NAME = re.compile(r"\b(?:dask|process|python)_\w+\b|\bup\b")
# Prometheus's own labels, which no process serves.
ADDED = {"instance", "job"}

Labels = dict[str, set[str]]


def expressions() -> list[str]:
    return [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]] + [
        rule["expr"] for rule in RULES
    ]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    with operated(tmp_path_factory.mktemp("monitored")) as started:
        yield started


def metrics(text: str) -> dict[str, Labels]:
    """The metrics of an answer by name, each with its labels and their values."""
    found: dict[str, Labels] = {}
    for family in text_string_to_metric_families(text):
        labels = found.setdefault(family.name + ("_total" if family.type == "counter" else ""), {})
        for sample in family.samples:
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    return found


def test_every_metric_and_label_is_served_and_a_lost_rank_raises_its_alert(cluster: Operated) -> None:
    with dbfs.connect(cluster.address, n_workers=2) as client:
        graph = dbfs.load("path:n=50", client=client, name="roads")
        graph.bfs(0)
        port = next(iter(joined_workers(client).values()))["services"]["dashboard"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            served = metrics(answer.read().decode()) | metrics(cluster.status("/metrics")[1])
        served["up"] = {}
        assert served["dask_dbfs_workers"]["state"] == set(WorkerState)
        for expression in expressions():
            names = NAME.findall(expression)
            assert names and set(names) <= served.keys(), expression
            for name, selector in re.findall(r"(\w+)\{([^}]*)\}", expression):
                for label, value in re.findall(r'(\w+)!?=~?"([^"]*)"', selector):
                    assert label in ADDED or value in served[name][label], expression
            for label in re.findall(r"by \((\w+)\)", expression):
                assert any(label in served[name] for name in names), expression
        legends = [(target["expr"], target["legendFormat"]) for panel in BOARD["panels"] for target in panel["targets"]]
        texts = legends + [(rule["expr"], str(rule["annotations"])) for rule in RULES]
        for expression, text in texts:
            for label in re.findall(r"\{\{ ?(?:\$labels\.)?(\w+) ?\}\}", text):
                known = ADDED.union(*(served[name] for name in NAME.findall(expression)))
                assert label in known or "_total" in expression, (expression, label)

        (lost,) = (rule["expr"] for rule in RULES if rule["alert"] == "DbfsRanksLost")
        name, above = re.fullmatch(r"(\w+) > (\d+)", lost).groups()  # type: ignore[union-attr]
        victim = graph.gang.addresses[1]
        os.kill(client.run(os.getpid, workers=[victim])[victim], signal.SIGKILL)

        def value(text: str) -> float:
            found = re.search(rf'^{name}\{{graph="roads"\}} (\S+)$', text, re.MULTILINE)
            assert found is not None
            return float(found[1])

        assert value(eventually(lambda: cluster.status("/metrics")[1], lambda text: value(text) > float(above))) == 1


def test_alerts_and_scrapes_name_the_same_jobs() -> None:
    jobs = {entry["job_name"] for entry in SCRAPES}
    for expression in expressions():
        for pattern in re.findall(r'job=~?"([^"]+)"', expression):
            assert any(re.fullmatch(pattern, job) for job in jobs), expression
    # In Kubernetes a job is dbfs- with the pod's component, scheduler or worker.
    assert {"dbfs-scheduler", "dbfs-workers"} <= jobs
    for rule in RULES:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["annotations"].keys() == {"summary", "description"}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")


def test_panels_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in BOARD["panels"]]
    cells = [(place["x"] + x, place["y"] + y) for place in places for x in range(place["w"]) for y in range(place["h"])]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(places)
