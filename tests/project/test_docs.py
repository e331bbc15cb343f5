"""The documentation's sources are true to the tree: the map, the pages that exist, and what the site is made of."""

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import dask
import pytest
import yaml

import dbfs
from dbfs import errors, lab

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MAP = (DOCS / "design" / "map.md").read_text(encoding="utf-8")
PACKAGES = {
    "dbfs": ROOT / "dbfs",
    "dbfs_workers": ROOT / "workers" / "dbfs_workers",
    "dbfs_workers.search": ROOT / "workers" / "dbfs_workers" / "search",
}
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if not {"_build", "generated"} & set(page.parts)]
CONTRACTS: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
    "importlinter"
]["contracts"]


def section(heading: str) -> str:
    """The text of one section of the map."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", MAP, re.DOTALL | re.MULTILINE)
    assert found is not None, heading
    return found[1]


def rows(heading: str) -> list[list[str]]:
    """Cells of the table in one section of the map, without its head."""
    lines = [line for line in section(heading).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def paths(text: str) -> list[str]:
    """Paths of the tree among the words set as code."""
    return re.findall(r"`((?:benchmarks|dbfs|workers|tests|configs|examples|docs)/[\w./-]*)`", text)


@pytest.mark.parametrize("path", sorted(set(paths(MAP))))
def test_every_path_on_the_map_exists(path: str) -> None:
    found = ROOT / path
    assert found.is_dir() if path.endswith("/") else found.is_file()


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES], ids=lambda page: page.stem)
def test_every_path_on_a_page_exists(page: Path) -> None:
    made = ("docs/_build/", "docs/generated/")
    named = [path for path in paths(page.read_text(encoding="utf-8")) if not path.startswith(made)]
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_path_in_a_cuda_source_exists() -> None:
    package = PACKAGES["dbfs_workers"]
    sources = [*package.rglob("*.cu"), *package.rglob("*.cuh")]
    named = {path for source in sources for path in re.findall(r"[\w/]+/\w+\.py\b", source.read_text(encoding="utf-8"))}
    assert len(named) > 8
    assert [path for path in sorted(named) if not ((package / path).is_file() or (ROOT / path).is_file())] == []


def test_a_path_that_does_not_exist_would_be_noticed() -> None:
    assert paths("`dbfs/catalog.py` and `workers/dbfs_workers/level.py`") == [
        "dbfs/catalog.py",
        "workers/dbfs_workers/level.py",
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_map_has_every_room_in_the_order_of_the_contract(package: str) -> None:
    contract = next(entry for entry in CONTRACTS if entry.get("containers") == [package])
    layers = [re.split(r"\s*[:|]\s*", layer) for layer in contract["layers"]]
    wanted = [(str(number), room) for number, layer in enumerate(layers, 1) for room in layer]
    root = PACKAGES[package].relative_to(ROOT)
    mapped = rows(f"The rooms of `{root}/`")
    assert [(number, Path(path.strip("`")).stem) for number, path, _ in mapped] == wanted
    there = {path.name for path in PACKAGES[package].iterdir() if (path / "__init__.py").exists()}
    there |= {path.stem for path in PACKAGES[package].glob("*.py")}
    entry_points = set(contract.get("exhaustive_ignores", ()))
    assert there - {"__init__"} == {room for _, room in wanted} | entry_points
    assert all(f"`{root}/{name}.py`" in MAP for name in entry_points)


def test_every_step_of_the_call_is_a_method_of_a_class_in_its_file() -> None:
    steps = rows("The way of one call")
    assert len(steps) >= 8
    for name, path, _ in steps:
        owner, method = name.strip("`").split(".")
        text = (ROOT / path.strip("`")).read_text(encoding="utf-8")
        body = re.search(rf"^class {owner}\b.*?(?=^class |\Z)", text, re.DOTALL | re.MULTILINE)
        assert body is not None, name
        assert re.search(rf"^    (?:async )?def {method}\(", body[0], re.MULTILINE), name


def test_every_word_of_the_glossary_stands_in_its_file() -> None:
    page = (DOCS / "design" / "index.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| ([^|]+) \| ([^|]+) \| `([^`]+)` \|$", page, re.MULTILINE)
    words = [words.split(", ") for words, _, _ in table]
    assert len(words) >= 30
    assert words == sorted(words)
    files = [(ROOT / path).read_text(encoding="utf-8").lower().replace("_", " ") for _, _, path in table]
    assert [word for each, file in zip(words, files, strict=True) for word in each if word not in file] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_links_between_pages_lead_to_pages_and_headings(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", page.read_text(encoding="utf-8")):
        file = (page.parent / target).resolve() if target else page
        assert file.is_file(), target
        assert not anchor or anchor in headings(file), f"{target}#{anchor}"


def headings(page: Path) -> set[str]:
    """Anchors of a page's headings."""
    found = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "index.md"], ids=lambda page: page.name)
def test_every_page_is_in_a_table_of_contents(page: Path) -> None:
    above = [folder / "index.md" for folder in (page.parent, page.parent.parent) if (folder / "index.md").exists()]
    listed = [line.strip() for index in above for line in index.read_text(encoding="utf-8").splitlines()]
    assert page.stem in listed


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "design" and page.name != "index.md"])
def test_every_page_on_design_has_one_picture_without_the_network(page: Path) -> None:
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+\.svg)\)", page.read_text(encoding="utf-8"))
    assert len(pictures) == 1
    drawn = (page.parent / pictures[0]).read_text(encoding="utf-8")
    assert drawn.startswith("<svg")
    assert "<title" in drawn
    assert set(re.findall(r"https?://[^\"' ]+", drawn)) <= {"http://www.w3.org/2000/svg"}


@pytest.fixture(scope="module")
def generated() -> ModuleType:
    """The extension that writes the generated pages; Sphinx itself is not needed."""
    spec = importlib.util.spec_from_file_location("generated_pages", DOCS / "_ext" / "generated_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_configuration_page_has_every_key_with_its_default(generated: ModuleType) -> None:
    text = (ROOT / "dbfs" / "dbfs.yaml").read_text(encoding="utf-8")

    def keys(tree: dict[str, Any], above: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in tree.items():
            found |= keys(value, f"{above}{key}.") if isinstance(value, dict) else {f"{above}{key}": value}
        return found

    page = generated.configuration(text)
    for key, default in keys(yaml.safe_load(text), "").items():
        about = re.search(rf"^## `{re.escape(key)}`\n\nDefault: `(.*)`\n\n(.+)$", page, re.MULTILINE)
        assert about is not None, key
        assert yaml.safe_load(about[1]) == default
        assert dask.config.get(key) is not None


def test_the_page_of_errors_has_every_error(generated: ModuleType) -> None:
    page = generated.errors()
    assert all(f".. autoexception:: dbfs.errors.{name}\n" in page for name in errors.__all__)
    assert re.search(r"GraphTooLargeError` \| `MemoryError` \| 2 \|", page)
    assert re.search(r"ValidationError` \| `AssertionError` \| 3 \|", page)


def test_the_page_of_strategies_has_every_strategy(generated: ModuleType) -> None:
    page = generated.strategies()
    for strategy in lab.STRATEGIES.values():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{strategy.name}` |"))
        assert all(text in row for text in (strategy.does, strategy.teaches, strategy.source, *strategy.options))


def test_the_gallery_has_a_picture_of_each_notebook_that_has_one(
    generated: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(generated, "GENERATED", tmp_path)
    page = generated.gallery()
    for file in (ROOT / "examples").glob("*.ipynb"):
        drawn = '"image/png"' in file.read_text(encoding="utf-8")
        assert (f"](gallery/{file.stem}.png)](notebooks/{file.name})" in page) == drawn, file
        assert not drawn or (tmp_path / "gallery" / f"{file.stem}.png").read_bytes().startswith(b"\x89PNG")


def test_links_of_copied_pages_lead_to_pages_or_to_files(generated: ModuleType) -> None:
    text = "[a](../README.md) [b](../cluster.yaml) [c](../tls/README.md#x) [d](https://dask.org)"
    assert generated.relinked(text, "configs/tls/README.md", generated.GENERATED / "clusters" / "tls.md") == (
        "[a](configs.md) [b](../../../configs/cluster.yaml) [c](tls.md#x) [d](https://dask.org)"
    )


def test_links_of_the_sites_own_pages_to_files_lead_to_their_pages(generated: ModuleType) -> None:
    text = "[a](../../dbfs/dbfs.yaml) [b](../../configs/README.md#x) [c](clusters.md) [d](#use) ![e](../dashboard.png)"
    source = [text]
    sphinx = SimpleNamespace(env=SimpleNamespace(doc2path=lambda name: str(DOCS / f"{name}.md")))
    generated.relink(sphinx, "how-to/gpus", source)
    assert source == [
        "[a](../generated/configuration.md) [b](../generated/clusters/configs.md#x) [c](clusters.md) [d](#use)"
        " ![e](../dashboard.png)"
    ]
    # A generated page has its links already.
    source = ["[a](../README.md)"]
    generated.relink(sphinx, "generated/clusters/tls", source)
    assert source == ["[a](../README.md)"]


def test_the_reference_has_every_public_name() -> None:
    page = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    elsewhere = {"__version__", "config", "errors"}
    missing = [name for name in dbfs.__all__ if name not in elsewhere and f":: dbfs.{name}\n" not in page]
    assert not missing


@pytest.mark.parametrize(("owner", "left_out"), [(dbfs.Graph, {"record"}), (dbfs.BFSResult, {"publish"})])
def test_the_reference_has_every_method_once(owner: type[dbfs.Graph | dbfs.BFSResult], left_out: set[str]) -> None:
    page = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    (listed,) = re.findall(rf"autoclass:: dbfs\.{owner.__name__}\n   :members: (.*)\n", page)
    found = [*listed.split(", "), *re.findall(rf":: dbfs\.{owner.__name__}\.(\w+)\n", page)]
    public = {name for name in dir(owner) if not name.startswith("_")}
    assert sorted(found) == sorted(public - owner._inner - left_out)


@pytest.mark.full
def test_no_file_names_an_address_that_the_project_does_not_have() -> None:
    """The name ``dbfs`` at a public host, or at an index of packages, belongs to another project."""
    hosts = r"(github|gitlab|bitbucket|codeberg|sr\.ht|readthedocs|pypi|anaconda|ghcr|docker|quay)"
    ours = re.compile(rf"{hosts}[\w.-]*[/:][\w./-]*dbfs|dbfs[\w-]*\.{hosts}|dbfs-(project|dev|org)\b", re.IGNORECASE)
    folders = (".github", "benchmarks", "configs", "dbfs", "docs", "examples", "tests", "workers")
    for path in (*ROOT.glob("*.*"), *(path for folder in folders for path in (ROOT / folder).rglob("*.*"))):
        made = {"_build", "generated", "__pycache__"} & set(path.parts) or path == Path(__file__)
        if path.is_file() and not made and path.suffix not in (".png", ".gz", ".bz2", ".xz", ".zst", ".parquet"):
            assert not (found := ours.search(path.read_text(encoding="utf-8", errors="replace"))), (path, found)


def test_the_notebooks_extra_brings_what_the_link_to_the_dashboard_needs() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {package for package in extras["dashboard"] if package.startswith("bokeh")} <= set(extras["notebook"])


def test_every_notebook_and_page_on_clusters_is_in_a_table_of_contents(generated: ModuleType) -> None:
    listed = {line.strip() for page in PAGES for line in page.read_text(encoding="utf-8").splitlines()}
    for page in generated.COPIED.values():
        assert any(line.endswith(f"generated/{page.rpartition('.')[0]}") for line in listed), page


def test_the_site_has_the_packages_that_the_reference_imports() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {*extras["plots"], *extras["networkx"]} <= set(extras["docs"])


def test_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert citation["version"] == project["version"]
    released = citation.get("date-released")
    # A version that is not released yet is the changelog's first.
    assert (f"## [{project['version']}] - {released}" if released else "## [Unreleased]") in changes
    stated = [path for path in (ROOT / "configs").rglob("*") if path.is_file() and "dbfs:" in path.read_text("utf-8")]
    for path in stated:
        for tag in re.findall(r"/dbfs:(\d[\w.]*)", path.read_text(encoding="utf-8")):
            assert tag == project["version"], path
