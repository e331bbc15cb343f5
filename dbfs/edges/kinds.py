"""IdKind: what an id, or a part of an id that is a tuple, can be."""

from typing import Literal, TypeAlias

IdKind: TypeAlias = Literal["integer", "string"]
