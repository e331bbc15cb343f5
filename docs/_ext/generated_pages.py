"""Sphinx extension: pages made of other files of the project, written to ``docs/generated/`` before each build.

The configuration page comes from ``dbfs/dbfs.yaml`` with its comments, the page of errors from ``dbfs.errors``, that of
the laboratory's strategies from their registry, the notebooks from ``examples/``, and the pages on clusters from
``configs/``. Pages link to these files, which a checkout
has; the site leads such a link to the page made of the file. A link to a file without a page becomes a download of it.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dbfs

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
GENERATED = DOCS / "generated"

# Classes that other calls return: their constructors are no business of a reader.
RETURNED = {"dbfs.AsyncBFSResult", "dbfs.AsyncGraph", "dbfs.AsyncRun", "dbfs.BFSResult", "dbfs.Graph", "dbfs.Run"}
# Name of each copied file, and of its page among the generated ones.
COPIED = {
    **{f"examples/{path.name}": f"notebooks/{path.name}" for path in sorted((ROOT / "examples").glob("*.ipynb"))},
    **{
        str(path.relative_to(ROOT)): f"clusters/{path.parent.name}.md"
        for path in sorted((ROOT / "configs").rglob("README.md"))
    },
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
# Name of each file from which a page is made, and of the page.
MADE = {
    **COPIED,
    "dbfs/dbfs.yaml": "configuration.md",
    "dbfs/errors.py": "errors.md",
    "workers/dbfs_workers/features/lab/strategies.py": "strategies.md",
}


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension; called by Sphinx."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("builder-inited", write_pages)
    app.connect("source-read", relink)
    app.connect("missing-reference", resolve_short_name)
    app.connect("autodoc-process-signature", hide_constructor)
    app.connect("autodoc-skip-member", hide_inner)
    app.setup_extension("sphinx_click")
    app.connect("sphinx-click-process-description", set_options_as_code)
    app.connect("sphinx-click-process-options", set_options_as_code)
    return {"parallel_read_safe": True}


def write_pages(_: Sphinx) -> None:
    """Write all generated pages."""
    for name, page in COPIED.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        write(page, notebook(text, name, page) if name.endswith(".ipynb") else relinked(text, name, GENERATED / page))
    write("configuration.md", configuration((ROOT / "dbfs" / "dbfs.yaml").read_text(encoding="utf-8")))
    write("errors.md", errors())
    write("strategies.md", strategies())
    write("gallery.md", gallery())


def write(page: str, text: str) -> None:
    """Write one page, except where it has this text already: Sphinx reads again whatever was written."""
    path = GENERATED / page
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def relink(app: Sphinx, docname: str, source: list[str]) -> None:
    """Turn the links of a page to files that have pages; called by Sphinx for each page that it reads."""
    page = Path(app.env.doc2path(docname))
    if page.suffix == ".md" and not page.is_relative_to(GENERATED):
        source[0] = relinked(source[0], str(page.relative_to(ROOT)), page)


def relinked(text: str, name: str, page: Path) -> str:
    """Markdown of the file ``name`` as ``page`` has it: links lead to pages of the site or to files of the checkout."""

    def link(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        if re.match(r"[a-z]+:", target):
            return match[0]
        file = (ROOT / name).parent.joinpath(target).resolve()
        made = MADE.get(os.path.relpath(file, ROOT))
        return f"]({os.path.relpath(GENERATED / made if made else file, page.parent)}{anchor})"

    return re.sub(r"\]\(([^)#\s]+)(#[^)\s]*)?\)", link, text)


def notebook(text: str, name: str, page: str) -> str:
    """JSON of a copied notebook with the links of its Markdown cells turned as in ``relinked``."""
    content = json.loads(text)
    for cell in content["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = relinked("".join(cell["source"]), name, GENERATED / page)
    return json.dumps(content, indent=1)


def configuration(text: str) -> str:
    """The configuration page: one section for each key of the YAML file, with its default and its comment."""
    lines = ["# Configuration", ""]
    comment: list[str] = []
    above: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("#"):
            comment.append(stripped.removeprefix("#").strip())
        elif stripped:
            depth = (len(line) - len(line.lstrip())) // 2
            key, _, value = stripped.partition(":")
            above = [*above[:depth], key]
            about = " ".join(comment)
            if depth == 0:
                lines += [about, ""]
            elif value.strip():
                lines += [f"## `{'.'.join(above)}`", "", f"Default: `{value.strip()}`", "", about, ""]
            comment = []
    return "\n".join(lines)


def errors() -> str:
    """The page of errors: each with its bases, the exit code of a command that fails so, and its meaning."""
    from dbfs import errors as module
    from dbfs.cli import exit_code

    lines = [
        "# Errors",
        "",
        "Every error of dbfs is a `dbfs.errors.DbfsError`. Each is also the built-in exception of its kind, so that",
        "`except ValueError` and the like catch it. A command of `dbfs` that fails prints the message on stderr and",
        "ends with the exit code in the last column.",
        "",
        "| error | also a | exit code |",
        "| --- | --- | --- |",
    ]
    for name in module.__all__:
        kind = getattr(module, name)
        builtin = next((base.__name__ for base in kind.__mro__ if base.__module__ == "builtins"), "")
        also = "" if kind is module.DbfsError else f"`{builtin}`"
        lines.append(f"| {{py:exc}}`~dbfs.errors.{name}` | {also} | {exit_code(kind(''))} |")
    lines.append("")
    for name in module.__all__:
        lines += ["```{eval-rst}", f".. autoexception:: dbfs.errors.{name}", "```", ""]
    return "\n".join(lines)


def strategies() -> str:
    """The page of the laboratory's strategies: what each does and teaches, its options and its source."""
    from dbfs.lab import STRATEGIES

    lines = [
        "# Strategies of the laboratory",
        "",
        "| strategy | on | what it does | what it teaches | options | source |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for each in STRATEGIES.values():
        where = f"{each.device}, {each.layout}" if each.grid else each.device
        options = ", ".join(f"`{option}`" for option in each.options)
        cells = (f"`{each.name}`", where, each.does, each.teaches, options, each.source)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def gallery() -> str:
    """The gallery: the first picture of each notebook, which leads to the notebook. Writes the pictures."""
    lines = ["# Gallery", ""]
    for name, page in COPIED.items():
        if not name.endswith(".ipynb"):
            continue
        cells = json.loads((ROOT / name).read_text(encoding="utf-8"))["cells"]
        outputs = (output.get("data", {}) for cell in cells for output in cell.get("outputs", ()))
        found = next((data["image/png"] for data in outputs if "image/png" in data), None)
        if found is None:
            continue
        picture = GENERATED / "gallery" / f"{Path(name).stem}.png"
        picture.parent.mkdir(parents=True, exist_ok=True)
        content = base64.b64decode("".join(found))
        if not picture.exists() or picture.read_bytes() != content:
            picture.write_bytes(content)
        title = "".join(cells[0]["source"]).splitlines()[0].removeprefix("# ")
        lines += [f"## {title}", "", f"[![{title}](gallery/{picture.name})]({page})", ""]
    return "\n".join(lines)


def resolve_short_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element
) -> nodes.Element | None:
    """Resolve a name that a docstring gives without its module, where one object of the reference ends with it."""
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py" or not target:
        return None
    domain = env.domains.python_domain
    found = [name for name in domain.objects if name == target or name.endswith(f".{target}")]
    if len(found) != 1:
        return None
    return domain.resolve_xref(env, node["refdoc"], app.builder, node["reftype"], found[0], node, content)


def hide_constructor(
    _app: Sphinx, _what: str, name: str, _obj: object, _options: object, signature: str | None, result: str | None
) -> tuple[str | None, str | None]:
    """Show a class that other calls return without the arguments of its constructor."""
    return ("", None) if name in RETURNED else (signature, result)


def hide_inner(_app: Sphinx, _what: str, name: str, member: object, _skip: bool, _options: object) -> bool | None:
    """Leave out a method or a property that its class keeps for other modules (``StaysHere._inner``)."""
    function = getattr(member, "fget", member)
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    name_of_owner = getattr(function, "__qualname__", "").partition(".")[0]
    # The methods of a part of a public class have that class's name.
    owner = getattr(module, name_of_owner, None) or getattr(dbfs, name_of_owner, None)
    return True if name in getattr(owner, "_inner", ()) else None


def set_options_as_code(_app: Sphinx, _ctx: object, lines: list[str]) -> None:
    """Set examples and options in the help of a command as code: in running text, two hyphens would become a dash."""
    for at, line in enumerate(lines):
        example = re.fullmatch(r"(\s*(?:\| *)?(?:Example: +)?)(dbfs .*)", line)
        if example is not None:
            lines[at] = f"{example[1]}``{example[2].rstrip()}``"
        elif not line.lstrip().startswith(".."):
            lines[at] = re.sub(r"(?<![\w`-])--[a-z][a-z-]*", r"``\g<0>``", line)
