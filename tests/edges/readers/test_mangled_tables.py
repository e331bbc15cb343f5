"""Mangled tables and arrays: each raises its exact error, with file, part of the file and reason."""

import pytest

from dbfs.edges.readers import from_file
from tests.support.mangled_tables import CORPORA

CASES = {f"{reader}: {name}": case for reader, corpus in CORPORA.items() for name, case in corpus.items()}


@pytest.mark.parametrize("case", CASES)
def test_a_mangled_table_is_a_typed_error(tmp_path, case):
    name, content, options, error, words = CASES[case]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(error) as caught:
        for piece in from_file(tmp_path / name, **options).cut(1):
            piece.read()
    message = str(caught.value)
    assert words in message
    assert type(caught.value) is error
    assert name in message or "source=" in message
    assert len(message) < 700


def test_the_corpora_are_large():
    assert all(len(corpus) >= 20 for corpus in CORPORA.values())
