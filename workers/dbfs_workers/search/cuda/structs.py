"""Structs, enums and constants that kernels share with Python. Each is declared once, in Python.

In: declarations (``layout.py``). Out: NumPy dtypes for the host, and the text of a C++ header for NVRTC. The header
checks the size of every struct and the offset of every field, so that NumPy and the compiler can't disagree.
"""

import enum
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

# NVRTC comes without <cstddef>. The intrinsic of its front end makes the address a constant.
_OPENING: Final = """#pragma once
#include "search/cuda/kernels/common/scalars.cuh"

#define DBFS_OFFSETOF(type, field) ((u64)__INTADDR__(&((type*)0)->field))

"""
_SCALARS: Final = {"u32": np.uint32, "u64": np.uint64, "float": np.float32}


@dataclass(frozen=True)
class Field:
    """One field of a struct.

    Attributes:
        name: the same in C++ and in the dtype.
        kind: a scalar (``u32``, ``u64``, ``float``), a pointer such as ``const u32*`` (uint64 in the dtype), an enum
            (uint32 in the dtype) or a struct.
        comment: the field's meaning, for readers of the header.
        count: length of an array; None for a single value.
    """

    name: str
    kind: "str | type[enum.IntEnum] | Struct"
    comment: str = ""
    count: int | None = None

    @property
    def dtype(self) -> "np.dtype[Any]":
        """The type of one element on the host."""
        if isinstance(self.kind, Struct):
            return self.kind.dtype
        if not isinstance(self.kind, str):
            return np.dtype(np.uint32)
        return np.dtype(np.uint64 if self.kind.endswith("*") else _SCALARS[self.kind])

    @property
    def alignment(self) -> int:
        """Bytes."""
        return self.kind.alignment if isinstance(self.kind, Struct) else self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.dtype.itemsize * (1 if self.count is None else self.count)

    @property
    def cpp(self) -> str:
        """The C++ declaration."""
        if isinstance(self.kind, str):
            name = self.kind
        else:
            name = self.kind.name if isinstance(self.kind, Struct) else self.kind.__name__
        declared = f"  {name} {self.name}{'' if self.count is None else f'[{self.count}]'};\n"
        return _cpp_comment(self.comment, "  ") + declared


@dataclass(frozen=True)
class Struct:
    """A struct in C++'s layout.

    Attributes:
        name: in C++.
        comment: its meaning, for readers of the header.
        fields: in order.
        least_alignment: bytes, for ``alignas``; 0 leaves the alignment to the fields.
    """

    name: str
    comment: str
    fields: tuple[Field, ...]
    least_alignment: int = 0

    @property
    def alignment(self) -> int:
        """Bytes."""
        return max(self.least_alignment, *(field.alignment for field in self.fields))

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Bytes from the start of the struct to each field, by the field's name."""
        offsets: dict[str, int] = {}
        end = 0
        for field in self.fields:
            offsets[field.name] = _aligned(end, field.alignment)
            end = offsets[field.name] + field.nbytes
        return offsets

    @cached_property
    def nbytes(self) -> int:
        """Size in bytes."""
        last = self.fields[-1]
        return _aligned(self.offsets[last.name] + last.nbytes, self.alignment)

    @cached_property
    def dtype(self) -> "np.dtype[Any]":
        """The struct as a NumPy dtype."""
        return self._dtype(self.fields, self.nbytes)

    def before(self, name: str) -> "np.dtype[Any]":
        """Return a NumPy dtype of the fields before ``name``, which ends at the offset of ``name``."""
        at = next(at for at, field in enumerate(self.fields) if field.name == name)
        return self._dtype(self.fields[:at], self.offsets[name])

    def _dtype(self, fields: Sequence[Field], nbytes: int) -> "np.dtype[Any]":
        return np.dtype(
            {
                "names": [field.name for field in fields],
                "formats": [field.dtype if field.count is None else (field.dtype, (field.count,)) for field in fields],
                "offsets": [self.offsets[field.name] for field in fields],
                "itemsize": nbytes,
            },
            align=True,
        )

    @property
    def cpp(self) -> str:
        """The C++ definition, and the checks of its size and offsets."""
        alignas = f"alignas({self.least_alignment}) " if self.least_alignment else ""
        fields = "".join(field.cpp for field in self.fields)
        checks = "".join(
            f'static_assert(DBFS_OFFSETOF({self.name}, {name}) == {at}, "offset of {self.name}::{name}");\n'
            for name, at in self.offsets.items()
        )
        size = f'static_assert(sizeof({self.name}) == {self.nbytes}, "size of {self.name}");\n'
        return f"{_cpp_comment(self.comment)}struct {alignas}{self.name} {{\n{fields}}};\n{size}{checks}"


def cpp_name(name: str) -> str:
    """Return a Python constant's name in the kernels: ``MAX_RANKS`` becomes ``kMaxRanks``."""
    return "k" + "".join(part.capitalize() for part in name.split("_"))


def cpp_enum(kind: type[enum.IntEnum], *, scoped: bool) -> str:
    """Return the C++ definition of an enum. Scoped members are written ``Kind::kMember``; the others index arrays."""
    members = "".join(f"  {cpp_name(member.name)} = {member.value},\n" for member in kind)
    comment = _cpp_comment((kind.__doc__ or "").partition("\n")[0])
    return f"{comment}enum {'class ' if scoped else ''}{kind.__name__} : u32 {{\n{members}}};\n"


def header(
    constants: Mapping[str, int],
    scoped: Sequence[type[enum.IntEnum]],
    indexes: Sequence[type[enum.IntEnum]],
    structs: Sequence[Struct],
) -> str:
    """Return the text of the C++ header, in namespace ``dbfs``. ``structs`` must list a struct before its users."""
    declared = [f"struct {struct.name};\n" for struct in structs]
    numbers = [f"constexpr u32 {cpp_name(name)} = {number};\n" for name, number in constants.items()]
    enums = [cpp_enum(kind, scoped=True) for kind in scoped] + [cpp_enum(kind, scoped=False) for kind in indexes]
    body = "\n".join(["".join(declared), "".join(numbers), *enums, *(struct.cpp for struct in structs)])
    return f"{_OPENING}namespace dbfs {{\n\n{body}\n}}  // namespace dbfs\n"


def _aligned(at: int, alignment: int) -> int:
    return -(-at // alignment) * alignment


def _cpp_comment(text: str, indent: str = "") -> str:
    return "".join(f"{indent}// {line}\n" for line in textwrap.wrap(text, 117 - len(indent)))
