"""Sphinx builds the documentation site by this file: ``make docs`` writes it to ``docs/_build/html``."""

import os
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "dbfs"
author = "The dbfs developers"
project_copyright = "2026, the dbfs developers"
version = release = installed_version("dbfs")

extensions = [
    "generated_pages",
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_click",
]
exclude_patterns = ["_build", "_ext", "**.ipynb_checkpoints"]

# Every reference to a name of this project must resolve. Names of other projects would need their inventories, which a
# build without network does not have.
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(?!dbfs[._]).*"),
    # Type variables have no entry of their own, nor have classes that only arguments of inner calls have.
    (r"py:class", r"dbfs_workers\.(search\.partition\.(stripe\.Ids|ordering\.Label)|base\.spec\.(Run|Traversal)Spec)"),
    (r"py:class", r"dbfs\.building\.(builder\.(Layouts|RowStorage)|attributes\.AttributeKeeper)"),
    (r"py:class", r"dbfs\.(edges\.edge_list\.Attributes|engines\.interface\.Outcome|cluster\.awaiting\.S)"),
    # Parts of public classes, and their type variables: the reference has the classes put together.
    (r"py:class", r"dbfs\.(graph\.(graph|striped|result|asynchronous)|cluster\.awaiting|features\.\w+\.\w+)\.\w+"),
]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
# The notebooks carry the output of one run; building the pages must not start clusters.
nb_execution_mode = "off"
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100

html_theme = "pydata_sphinx_theme"
html_title = "dbfs"
html_static_path = ["_static"]
html_css_files = ["dbfs.css"]
html_search_scorer = str(HERE / "_ext" / "scorer.js")
html_show_sourcelink = False
html_copy_source = False
# Pages without pages beside them need no list of those.
html_sidebars: dict[str, list[str]] = {"index": [], "generated/contributing": [], "generated/changelog": []}
html_theme_options = {
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "header_links_before_dropdown": 5,
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "use_edit_page_button": False,
}
# The release workflow says where the sites of all versions lie (docs/_ext/versions.py).
if site := os.environ.get("DBFS_DOCS_URL"):
    html_theme_options |= {
        "switcher": {"json_url": f"{site}/switcher.json", "version_match": version},
        "check_switcher": False,
        "show_version_warning_banner": True,
        "navbar_end": ["version-switcher", "theme-switcher", "navbar-icon-links"],
    }
