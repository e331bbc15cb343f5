"""Configuration: values of ``dask.config`` under the key ``dbfs``, with the defaults of ``dbfs.yaml``.

Also the loader of other YAML files: of catalogs and plans.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dask
import yaml
from dask.utils import parse_timedelta

from dbfs.errors import InvalidOptionError

dask.config.update_defaults(yaml.safe_load(Path(__file__).with_name("dbfs.yaml").read_text(encoding="utf-8")))


class UniqueKeyLoader(yaml.SafeLoader):
    """YAML loader that refuses a duplicate key; PyYAML's own loader would silently keep the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping; raise ``yaml.YAMLError`` with the line if a key appears twice."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for at, key in enumerate(keys):
            if key in keys[:at]:
                mark = node.value[at][0].start_mark
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} appears twice", mark)
        return super().construct_mapping(node, deep)


def get(key: str) -> Any:
    """Return the value of ``dbfs.<key>``."""
    # Dask's own look-up takes three calls more, and a traversal reads three values.
    value = dask.config.config["dbfs"].get(key)
    return dask.config.get(f"dbfs.{key}") if value is None else value


def seconds(key: str, override: float | str | None = None) -> float:
    """Return a duration in seconds: ``override`` if given, else the value of ``dbfs.<key>``.

    Raises:
        InvalidOptionError: the value is not a duration above zero.
    """
    value = get(key) if override is None else override
    if type(value) is str:
        # A call of a traversal reads several durations, and each takes Dask 20 us.
        return _parsed(key, value)
    return _duration(key, value)


@functools.lru_cache(maxsize=256)
def _parsed(key: str, value: str) -> float:
    return _duration(key, value)


def _duration(key: str, value: Any) -> float:
    try:
        # Dask takes a bool for a number, and anything else for a text.
        duration = float(parse_timedelta("" if isinstance(value, bool) else value, default="s"))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise InvalidOptionError(f"dbfs.{key}: {value!r} is not a duration such as 30s or '5 minutes'") from error
    if not duration > 0:
        raise InvalidOptionError(f"dbfs.{key}: {value!r} is not above zero")
    return duration


def count(key: str, *, least: int = 1) -> int:
    """Return the value of ``dbfs.<key>``, a whole number.

    Raises:
        InvalidOptionError: the value is not a whole number of at least ``least``.
    """
    value = get(key)
    try:
        number = int(value)
    except (ValueError, TypeError):
        number = least - 1
    if number < least or number != value:
        raise InvalidOptionError(f"dbfs.{key}: {value!r} is not a whole number of at least {least}")
    return number


def flag(key: str) -> bool:
    """Return the value of ``dbfs.<key>``, true or false.

    Raises:
        InvalidOptionError: the value is neither.
    """
    value = get(key)
    if not isinstance(value, bool):
        raise InvalidOptionError(f"dbfs.{key}: {value!r} is neither true nor false")
    return value


def choice(key: str, choices: Sequence[str]) -> str:
    """Return the value of ``dbfs.<key>``, one of ``choices``.

    Raises:
        InvalidOptionError: the value is not one of ``choices``.
    """
    value = get(key)
    if value not in choices:
        raise InvalidOptionError(f"dbfs.{key}: {value!r} is not one of {', '.join(choices)}")
    return str(value)
