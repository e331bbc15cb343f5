"""What makes a release: locked packages, pinned actions, the conda recipe, the sites of several versions."""

import importlib.util
import json
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
# Extras of each lock; the Makefile's target locks says the same.
LOCKS = {
    "dev": ["dev", "docs"],
    "image": ["dashboard"],
    "image-cu13": ["dashboard", "cu13", "nccl-cu13"],
    "release": [],
}


def locked(name: str) -> dict[str, list[tuple[Requirement, int]]]:
    """The requirements of a lock by their names, each with its number of hashes."""
    found: dict[str, list[tuple[Requirement, int]]] = {}
    text = re.sub(r"^ *#.*\n", "", (ROOT / "locks" / f"{name}.txt").read_text(), flags=re.MULTILINE)
    for entry in text.replace("\\\n", " ").splitlines():
        words, *hashes = entry.split(" --hash=sha256:")
        requirement = Requirement(words)
        found.setdefault(canonicalize_name(requirement.name), []).append((requirement, len(hashes)))
    return found


@pytest.mark.parametrize("name", LOCKS)
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
def test_a_lock_has_a_release_with_hashes_for_each_requirement(name: str, python: str) -> None:
    pins = locked(name)
    assert all(count for entries in pins.values() for _, count in entries)
    extras = [line for extra in LOCKS[name] for line in PROJECT["optional-dependencies"][extra]]
    lines = (ROOT / "locks" / "release.in").read_text().splitlines() if name == "release" else []
    wanted = [*(PROJECT["dependencies"] if extras else []), *extras, *lines]
    place = {"python_full_version": f"{python}.1", "python_version": python, "sys_platform": "linux"}
    for line in wanted:
        if line.startswith("#"):
            continue
        requirement = Requirement(line)
        taken = [
            pin
            for pin, _ in pins[canonicalize_name(requirement.name)]
            if pin.marker is None or pin.marker.evaluate(place)
        ]
        assert len(taken) == 1, requirement
        (exact,) = taken[0].specifier
        assert exact.operator == "==" and requirement.specifier.contains(Version(exact.version)), requirement


def test_the_makefile_makes_each_lock_of_its_extras() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for name, extras in LOCKS.items():
        words = "".join(f" --extra {extra}" for extra in extras)
        assert f"$(COMPILE){words} -o locks/{name}.txt" in makefile
    assert {path.stem for path in (ROOT / "locks").glob("*.txt")} == LOCKS.keys()


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_commit(workflow: Path) -> None:
    text = workflow.read_text()
    used = re.findall(r"^ *-? *uses: (.+)$", text, flags=re.MULTILINE)
    assert len(used) == text.count("uses:")
    for words in used:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+|\./\.github/workflows/\w+\.yml", words), words
    for job in yaml.safe_load(text)["jobs"].values():
        needed = [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", [])
        assert set(needed) <= yaml.safe_load(text)["jobs"].keys()


def test_one_action_has_one_commit() -> None:
    used = {words for path in WORKFLOWS for words in re.findall(r"uses: (\S+@\S+)", path.read_text())}
    assert len({words.partition("@")[0] for words in used}) == len(used)


def test_workflows_follow_their_schema() -> None:
    if importlib.util.find_spec("check_jsonschema") is None:
        pytest.skip("check-jsonschema, which has the schema of GitHub's workflows, is not installed")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    subprocess.run([*command, *map(str, WORKFLOWS)], check=True)


def test_the_conda_recipe_needs_what_the_wheel_needs() -> None:
    text = (ROOT / "configs" / "conda" / "recipe.yaml").read_text()
    recipe = yaml.safe_load(text)
    assert recipe["context"]["version"] == PROJECT["version"]
    assert recipe["about"]["license"] == PROJECT["license"]
    needed = {f"python {PROJECT['requires-python']}"}
    for line in PROJECT["dependencies"]:
        requirement = Requirement(line)
        needed.add(f"{requirement.name} {requirement.specifier}".strip())
    assert set(recipe["requirements"]["run"]) == needed
    (plugin,) = (test for test in recipe["tests"] if "script" in test)
    assert plugin["script"][0] == "dbfs --version"
    assert recipe["build"]["python"]["entry_points"] == [f"{name} = {to}" for name, to in PROJECT["scripts"].items()]


def test_the_list_of_versions(tmp_path: Path) -> None:
    publish = runpy.run_path(str(ROOT / "docs" / "_ext" / "versions.py"))["publish"]
    html, site = tmp_path / "html", tmp_path / "site"
    html.mkdir()
    (html / "index.html").write_text("new")
    (site / "0.10.0").mkdir(parents=True)
    (site / ".git").mkdir()
    for version in ("0.9.0", "0.11.0rc1", "0.9.0"):
        publish(html, site, version, "https://example.org/dbfs")
    entries = json.loads((site / "switcher.json").read_text())
    assert [entry["version"] for entry in entries] == ["0.11.0rc1", "0.10.0", "0.9.0"]
    assert [entry["version"] for entry in entries if entry.get("preferred")] == ["0.10.0"]
    assert entries[-1]["url"] == "https://example.org/dbfs/0.9.0/"
    assert "url=0.10.0/" in (site / "index.html").read_text()
    assert (site / "0.9.0" / "index.html").read_text() == "new"


def test_the_web_services_image_has_the_release_that_is_tested() -> None:
    ((tested, _),) = locked("dev")["starlette"]
    text = (ROOT / "examples" / "web_service" / "Dockerfile").read_text()
    assert f"starlette{tested.specifier} " in text and re.search(r"uvicorn==[\d.]+$", text, re.MULTILINE)
