"""Hatchling's hook for wheels and sdists: both have the commit that they were built from, in ``dbfs/COMMIT``."""

import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the file. An editable install has none, since its checkout moves on."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Hatchling calls this before each build; ``version`` is ``standard`` or ``editable``."""
        package = Path(self.root, "dbfs")
        if version == "editable" or (package / "COMMIT").exists():
            return
        commit = runpy.run_path(str(package / "base" / "build.py"))["COMMIT"]
        if commit is not None:
            file = Path(tempfile.mkdtemp(prefix="dbfs-"), "COMMIT")
            file.write_text(f"{commit}\n")
            build_data["force_include"][str(file)] = "dbfs/COMMIT"
