"""Every planted fault has its place and names tests that exist; ``make planted`` shows that they catch it."""

from pathlib import Path

from tests.planted.faults import FAULTS
from tests.support.planting import Fault, planted


def test_every_fault_has_its_place_and_its_tests() -> None:
    assert [problem for fault in FAULTS if (problem := fault.problem())] == []
    places = [(fault.file, fault.old, fault.new) for fault in FAULTS]
    assert len(set(places)) == len(places)


def test_a_fault_that_has_no_place_is_told() -> None:
    file, once = "pyproject.toml", "[build-system]"
    test = "tests/project/test_planted.py::test_a_fault_that_has_no_place_is_told"
    assert Fault(file, once, "", (test,)).problem() == ""
    assert "the text 0 times" in Fault(file, "no such text", "", (test,)).problem()
    assert "the text 0 times" in Fault("no/such/file.py", once, "", (test,)).problem()
    assert Fault(file, once, "", ("tests/project/test_planted.py",)).problem() == ""
    assert "the change is not Python" in Fault("tests/planted/__main__.py", "import Path", "import", (test,)).problem()
    assert "there is no test" in Fault(file, once, "", ("tests/project/test_planted.py::test_other",)).problem()
    assert "no test is named" in Fault(file, once, "", ()).problem()


def test_compiled_kernels_of_callers_are_set_aside_with_a_fault(tmp_path: Path) -> None:
    folder = tmp_path / "workers" / "dbfs_workers"
    (folder / "__pycache__").mkdir(parents=True)
    uses = "from dbfs_workers.base.jit import kernel\n"
    texts = {
        "called": f"{uses}VALUE = 1\n",
        "caller": f"{uses}from dbfs_workers.called import VALUE\n",
        "far": f"{uses}from dbfs_workers import caller\n",
        "apart": uses,
    }
    kept = {name: folder / "__pycache__" / f"{name}.kernel-1.py3.nbi" for name in texts}
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
        kept[name].write_text(name)
    before = (folder / "called.py").stat().st_mtime_ns
    with planted(Fault("workers/dbfs_workers/called.py", "VALUE = 1", "VALUE = 2", ()), tmp_path):
        assert (folder / "called.py").read_text() == f"{uses}VALUE = 2\n"
        assert [name for name, cache in kept.items() if cache.exists()] == ["apart"]
        kept["caller"].write_text("compiled with the fault")
    assert (folder / "called.py").read_text() == texts["called"]
    assert (folder / "called.py").stat().st_mtime_ns == before
    assert {name: cache.read_text() for name, cache in kept.items()} == {name: name for name in texts}
