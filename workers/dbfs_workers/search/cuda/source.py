"""A CUDA source: its file, the compiler's options, and the headers that it includes.

A room declares its sources in the module ``sources`` of its package ``kernels``, where ``sources`` finds them.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dbfs_workers.base.kernel_packages import PACKAGE, declared

_INCLUDE: Final = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class Source:
    """A CUDA source. It needs no GPU, no compiler and no CuPy.

    Attributes:
        path: its path below the package, such as ``building/kernels/csr.cu``.
        defines: compiler options, such as ``-DDBFS_GANG=1``.
        generated: headers that are no files, as pairs of a name in ``#include`` and a text.
        launching: whether its kernels launch kernels: it is linked with CUDA's device runtime.
        first: whether a first graph needs it.
    """

    path: str
    defines: tuple[str, ...] = ()
    generated: tuple[tuple[str, str], ...] = ()
    launching: bool = False
    first: bool = False

    @property
    def text(self) -> str:
        """The text of the file."""
        return (PACKAGE / self.path).read_text()

    def headers(self) -> dict[str, str]:
        """Return the texts of the headers that the source includes, also by other headers, by name.

        Raises:
            FileNotFoundError: a header is neither generated nor a file.
        """
        generated = dict(self.generated)
        return included(self.text, lambda name: generated[name] if name in generated else (PACKAGE / name).read_text())


def included(text: str, read: Callable[[str], str]) -> dict[str, str]:
    """Return the texts of all files that a text includes, also by other files, by name; ``read`` returns a file's."""
    found, left = dict[str, str](), [text]
    while left:
        for name in _INCLUDE.findall(left.pop()):
            if name not in found:
                found[name] = read(name)
                left.append(found[name])
    return found


def sources() -> list[Source]:
    """Return every source with each set of options that a run can need; of the laboratory's, the default options."""
    return declared("SOURCES", "sources.py")
