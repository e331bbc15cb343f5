"""The examples, each run as a reader would run it."""

import os
import subprocess
import sys
from pathlib import Path

import distributed
import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
OFTEN = {"quickstart", "dataframe"}
"""The notebooks of the second size: each starts a cluster."""


@pytest.fixture
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run notebooks in an empty folder, without this session's scheduler address."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    return tmp_path


def test_all_are_listed() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    for file in EXAMPLES.iterdir():
        assert file.name == "README.md" or f"({file.name})" in listed


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "notebook",
    [pytest.param(each, id=each.stem, marks=[] if each.stem in OFTEN else pytest.mark.long) for each in NOTEBOOKS],
)
def test_notebooks(notebook: Path, in_a_folder_of_its_own: Path) -> None:
    read = nbformat.read(notebook, 4)
    nbformat.validate(read)
    kept = [cell.get("outputs") for cell in read.cells if cell.cell_type == "code"]
    assert any(kept), "it was saved without its output"
    assert not [output for outputs in kept for output in outputs if output.output_type == "error"]
    assert not on_stderr(read)
    # Raises an error if a cell does.
    NotebookClient(read, timeout=100, kernel_name="python3").execute()
    assert not on_stderr(read)


def on_stderr(notebook: nbformat.NotebookNode) -> list[str]:
    """Return what a notebook wrote to stderr, which a browser shows in red.

    Without what Dask's nannies write where workers of a cluster of Dask's own take more than four seconds to end. Other
    programs on the machine may cause that.
    """
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    lines = [line for output in outputs if output.get("name") == "stderr" for line in output.text.splitlines()]
    return [line for line in lines if "Worker process still alive after" not in line]


@pytest.mark.full
def test_bars_in_a_notebook_leave_no_line(in_a_folder_of_its_own: Path) -> None:
    code = """
import dbfs
client = dbfs.connect(backend="cpu", processes=False)
run = dbfs.graph500(12, client=client)
client.close()"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    NotebookClient(notebook, timeout=100, kernel_name="python3").execute()
    outputs = notebook.cells[0].outputs
    # The searches have a bar: an output that is empty at the end.
    assert {output.output_type for output in outputs} == {"display_data"}
    assert not any(any(output.data.values()) for output in outputs)


@pytest.mark.full
def test_a_notebook_on_a_cluster_that_runs(
    client: distributed.Client, in_a_folder_of_its_own: Path, monkeypatch: pytest.MonkeyPatch, leaves_nothing: None
) -> None:
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", client.scheduler.address)
    read = nbformat.read(EXAMPLES / "multi_node.ipynb", 4)
    NotebookClient(read, timeout=100, kernel_name="python3").execute()
    printed = [
        output.text for cell in read.cells for output in cell.get("outputs", []) if output.output_type == "stream"
    ]
    assert any("4 ranks, hosts: 1" in text for text in printed)


@pytest.mark.full
def test_the_script_for_a_cluster(client: distributed.Client, leaves_nothing: None) -> None:
    command = [sys.executable, EXAMPLES / "multi_node.py", "--ranks", "3", "--scale", "10"]
    there = os.environ | {"DASK_SCHEDULER_ADDRESS": client.scheduler.address}
    done = subprocess.run(command, env=there, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "3 ranks" in done.stdout
    assert "hosts: 1, backend: cpu, exchange: shared_memory" in done.stdout
