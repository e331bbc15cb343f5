"""The packages named ``kernels``: a room's CPU kernels (modules) and CUDA sources (``*.cu``), found by walking folders.

What others need to know of a room's kernels stands beside them, as constants that import no Numba and no CuPy:

- the package's ``__init__`` names CPU kernels, as ``compiling.found`` takes them: in ``FIRST`` what a first graph
  needs, in others what a rank needs;
- its module ``sources`` has the CUDA sources (``search.cuda.source.Source``), in ``SOURCES`` all of them; and in
  ``AHEAD`` the programs that have CuPy compile what a first graph needs.
"""

from importlib import import_module
from pathlib import Path
from typing import Any, Final

PACKAGE: Final = Path(__file__).parents[1]
"""The folder of ``dbfs_workers``. CUDA sources and headers are named by their paths below it."""


def kernel_modules(package: Path) -> list[str]:
    """Return the names of all modules with CPU kernels below a package's folder."""
    # By the files: ``pkgutil`` would import every package on the way.
    return [_name(package, path) for path in sorted(package.rglob("kernels/*.py")) if path.stem != "__init__"]


def declared(constant: str, file: str = "__init__.py") -> list[Any]:
    """Return the elements of a constant in such a file of all packages, one package's behind another's."""
    modules = (import_module(_name(PACKAGE, path)) for path in sorted(PACKAGE.rglob(f"kernels/{file}")))
    return [each for module in modules for each in getattr(module, constant, ())]


def _name(package: Path, path: Path) -> str:
    return ".".join((package.name, *path.relative_to(package).with_suffix("").parts)).removesuffix(".__init__")
