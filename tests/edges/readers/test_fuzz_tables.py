"""Random bytes in tables and arrays: a read ends with edges or a typed error, and takes little memory.

Axes: format x how the file comes about (flipped bytes, parts cut and joined, any bytes). ``make fuzz`` goes on long.
"""

import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dbfs.edges.readers import from_file
from dbfs.errors import DbfsError
from tests.support.mangled_tables import VALID
from tests.support.memory import reset_peak, status

MAGIC = {"parquet": b"PAR1", "arrow": b"ARROW1\0\0", "npy": b"\x93NUMPY\x01\0", "npz": b"PK\x03\x04", "csv": b"a,b\n"}
MOST_BYTES = 300_000_000
QUIET = settings(deadline=None, suppress_health_check=list(HealthCheck))

pytestmark = [pytest.mark.full, pytest.mark.fuzz]


def read(path: Path) -> None:
    """Read a file by columns a and b if it may have them, and by its own columns; only typed errors pass."""
    for options in ({"source": "a", "target": "b"}, {}, {"directed": True}):
        before = reset_peak()
        try:
            for piece in from_file(path, **options).cut(1)[:50]:
                src, dst = piece.read()
                assert len(src) == len(dst)
        except DbfsError as error:
            assert str(error).isprintable()
        assert status("VmHWM") - before < MOST_BYTES


@pytest.mark.parametrize("name", VALID)
@QUIET
@given(data=st.data())
def test_flipped_bytes(tmp_path, name, data):
    file, content = VALID[name]
    mangled = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        mangled[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / file).write_bytes(mangled)
    with warnings.catch_warnings():
        # zipfile warns of names that occur twice.
        warnings.simplefilter("ignore")
        read(tmp_path / file)


@pytest.mark.parametrize("name", VALID)
@QUIET
@given(data=st.data())
def test_cut_and_joined_parts(tmp_path, name, data):
    file, content = VALID[name]
    places = st.integers(0, len(content))
    head, tail = data.draw(places), data.draw(places)
    (tmp_path / file).write_bytes(content[:head] + data.draw(st.binary(max_size=20)) + content[tail:])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read(tmp_path / file)


@pytest.mark.parametrize("name", MAGIC)
@QUIET
@given(content=st.binary(max_size=200))
def test_random_bytes(tmp_path, name, content):
    for text in (content, MAGIC[name] + content, MAGIC[name] + content + MAGIC[name]):
        (tmp_path / f"a.{name}").write_bytes(text)
        read(tmp_path / f"a.{name}")
