"""Puts a built site beside those of other versions: ``python docs/_ext/versions.py HTML SITE VERSION URL``.

``SITE`` then has a folder ``VERSION``, the list ``switcher.json`` from which the pages of all versions choose, and an
``index.html`` that leads to the newest version.
"""

import json
import shutil
import sys
from pathlib import Path

from packaging.version import InvalidVersion, Version


def publish(html: Path, site: Path, version: str, url: str) -> None:
    """Copy the pages ``html`` into ``site``, whose address is ``url``, and list the versions that are there."""
    folder = site / str(Version(version))
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(html, folder)
    versions = sorted(filter(None, map(_version, site.iterdir())), reverse=True)
    newest = next((each for each in versions if not each.is_prerelease), versions[0])
    entries = [
        {"name": f"{each} (stable)" if each == newest else str(each), "version": str(each), "url": f"{url}/{each}/"}
        | ({"preferred": True} if each == newest else {})
        for each in versions
    ]
    (site / "switcher.json").write_text(json.dumps(entries, indent=1))
    (site / "index.html").write_text(
        f'<meta http-equiv="refresh" content="0; url={newest}/"><a href="{newest}/">dbfs</a>\n'
    )
    # GitHub's own site generator would leave out folders that begin with an underscore.
    (site / ".nojekyll").touch()


def _version(folder: Path) -> Version | None:
    try:
        return Version(folder.name) if folder.is_dir() else None
    except InvalidVersion:
        return None


if __name__ == "__main__":
    publish(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4])
