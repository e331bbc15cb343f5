"""Specs: which ones parse, the message of every mistake, and which texts count as specs."""

import re
from typing import Any

import numpy as np
import pytest

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate import (
    GENERATORS,
    complete,
    corpus,
    describe,
    geometric,
    grid2d,
    grid3d,
    is_spec,
    kronecker,
    parse,
    path,
    random_tree,
    rmat,
    star,
    tree,
    uniform,
)
from dbfs.errors import InvalidOptionError, InvalidOptionTypeError

NAMES = "kronecker, rmat, uniform, grid2d, grid3d, path, star, complete, tree, random_tree, geometric, corpus"


@pytest.mark.parametrize(
    ("spec", "edges"),
    [
        ("kronecker:scale=18", kronecker(18)),
        ("kronecker:scale=16,edgefactor=8,seed1=4,seed2=5", kronecker(16, 8, 4, 5)),
        ("kronecker:seed2=7,scale=16", kronecker(16, seed2=7)),
        ("uniform:n=100000,m=1600000", uniform(100_000, 1_600_000)),
        ("uniform:n=10,m=20,seed=5,directed=true", uniform(10, 20, 5, directed=True)),
        ("uniform:n=10,m=20,directed=False", uniform(10, 20)),
        ("uniform:n=0,m=0", uniform(0, 0)),
        ("grid2d:side=1000", grid2d(1000)),
        ("grid3d:side=100", grid3d(100)),
        ("path:n=1000", path(1000)),
        ("path:n=1_000_000", path(1_000_000)),
        ("path:n=1e6", path(1_000_000)),
        ("path:n=12E3", path(12_000)),
        ("grid2d:side=9,loops=true", grid2d(9, loops=True)),
        ("rmat:scale=9", rmat(9)),
        ("rmat:scale=9,a=0.45,b=1.5e-1,c=0.15,n=300,m=1e3", rmat(9, a=0.45, b=0.15, c=0.15, n=300, m=1000)),
        ("star:n=1000", star(1000)),
        ("complete:n=10", complete(10)),
        ("tree:n=1e3,arity=5", tree(1000, 5)),
        ("random_tree:n=9,seed=4", random_tree(9, 4)),
        ("geometric:n=100,radius=0.1", geometric(100, 0.1)),
        ("geometric:n=100,radius=1,seed=3", geometric(100, 1, 3)),
        ("corpus:cage15", corpus("cage15")),
        ("corpus:name=cage15", corpus("cage15")),
        ("corpus:europe.osm,scale-down=64", corpus("europe.osm", 64)),
        ("corpus:scale_down=64,name=europe.osm", corpus("europe.osm", 64)),
    ],
)
def test_a_spec_makes_the_generators_edges(spec: str, edges: EdgeList) -> None:
    assert parse(spec) == edges


@pytest.mark.parametrize(
    ("edges", "name"),
    [
        (kronecker(18), "kronecker:scale=18,edgefactor=16,seed1=2,seed2=3"),
        (uniform(10, 20, 2**64 - 1, directed=True), "uniform:n=10,m=20,seed=18446744073709551615,directed=true"),
        (uniform(10, 20), "uniform:n=10,m=20,seed=1,directed=false"),
        (grid2d(7), "grid2d:side=7"),
        (grid3d(7), "grid3d:side=7"),
        (path(7), "path:n=7"),
        (grid3d(7, loops=True), "grid3d:side=7,loops=true"),
        (rmat(7, a=1e-5), "rmat:scale=7,edgefactor=16,a=1e-05,b=0.19,c=0.19,seed=1,directed=false"),
        (
            rmat(7, n=100, m=9, directed=True),
            "rmat:scale=7,edgefactor=16,a=0.57,b=0.19,c=0.19,seed=1,directed=true,n=100,m=9",
        ),
        (star(7), "star:n=7"),
        (complete(7), "complete:n=7"),
        (tree(7), "tree:n=7,arity=2"),
        (random_tree(7), "random_tree:n=7,seed=1"),
        (geometric(7, 1 / 3), "geometric:n=7,radius=0.3333333333333333,seed=1"),
        (corpus("cage15", 3), "corpus:cage15,scale-down=3"),
    ],
)
def test_names_are_specs(edges: EdgeList, name: str) -> None:
    assert edges.name == name
    assert is_spec(name)
    assert parse(name) == edges


@pytest.mark.parametrize("generator", GENERATORS, ids=lambda generator: generator.name)
def test_the_help_has_every_generator_with_an_example(generator) -> None:
    assert parse(generator.example).name.startswith(f"{generator.name}:")
    for text in (generator.example, generator.summary, generator.usage):
        assert text in describe()
    assert {parameter.annotation for parameter in generator.parameters.values()} <= {int, int | None, float, bool, str}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", f"unknown generator ''. The generators: {NAMES}"),
        ("kroneker:scale=3", f"unknown generator 'kroneker'; did you mean 'kronecker'? The generators: {NAMES}"),
        ("kronecker", "kronecker: scale not given; parameters: scale, edgefactor=16, seed1=2, seed2=3"),
        ("kronecker:", "kronecker: scale not given; parameters: scale, edgefactor=16, seed1=2, seed2=3"),
        ("uniform:seed=2", "uniform: n and m not given; parameters: n, m, seed=1, directed=false"),
        ("grid2d:sides=3", "grid2d: unknown parameter 'sides'; did you mean 'side'? Parameters: side, loops=false"),
        ("grid2d:side=3,side=3", "grid2d: side is given twice; parameters: side, loops=false"),
        ("grid2d:3", "grid2d: '3' is not parameter=value; parameters: side, loops=false"),
        ("grid2d:side=3,", "grid2d: '' is not parameter=value; parameters: side, loops=false"),
        ("grid2d:side=", "grid2d: side must be an integer such as 1000, 1_000 or 1e3, not ''"),
        ("grid2d:side=1.5", "grid2d: side must be an integer such as 1000, 1_000 or 1e3, not '1.5'"),
        ("grid2d:side=1e-3", "grid2d: side must be an integer such as 1000, 1_000 or 1e3, not '1e-3'"),
        ("grid2d:side=1e999999999", "grid2d: side must be an integer such as 1000, 1_000 or 1e3, not '1e999999999'"),
        ("grid2d:side=1__0", "grid2d: side must be an integer such as 1000, 1_000 or 1e3, not '1__0'"),
        ("grid2d:side=ten", "grid2d: side must be an integer such as 1000, 1_000 or 1e3, not 'ten'"),
        ("grid2d:side=٣", "grid2d: side must be an integer such as 1000, 1_000 or 1e3, not '٣'"),
        ("uniform:n=1,m=1,directed=1", "uniform: directed must be true or false, not '1'"),
        ("uniform:n=0,m=1", "uniform: n must be in 1..1099511627776 if m > 0, not 0"),
        ("uniform:n=-1,m=1", "uniform: n must be in 0..1099511627776, not -1"),
        ("uniform:n=1,m=-1", "uniform: m must be in 0..1152921504606846976, not -1"),
        ("uniform:n=1,m=1,seed=-1", "uniform: seed must be in 0..18446744073709551615, not -1"),
        ("uniform:n=1e13,m=1", "uniform: n must be in 0..1099511627776, not 10000000000000"),
        ("kronecker:scale=0", "kronecker: scale must be in 1..40, not 0"),
        ("kronecker:scale=41", "kronecker: scale must be in 1..40, not 41"),
        ("kronecker:scale=4,edgefactor=0", "kronecker: edgefactor must be in 1..1048576, not 0"),
        ("kronecker:scale=4,seed1=1e20", "kronecker: seed1 must be in 0..18446744073709551615, not 1" + "0" * 20),
        ("kronecker:scale=4,seed2=-1", "kronecker: seed2 must be in 0..18446744073709551615, not -1"),
        ("grid2d:side=0", "grid2d: side must be in 1..1048576, not 0"),
        ("grid3d:side=10322", "grid3d: side must be in 1..10321, not 10322"),
        ("grid2d:side=3,loops=1", "grid2d: loops must be true or false, not '1'"),
        ("rmat:scale=3,a=x", "rmat: a must be a number such as 0.25 or 1e-3, not 'x'"),
        ("rmat:scale=3,a=nan", "rmat: a must be a number such as 0.25 or 1e-3, not 'nan'"),
        ("rmat:scale=3,a=1e999", "rmat: a must be a number such as 0.25 or 1e-3, not '1e999'"),
        ("rmat:scale=3,a=2", "rmat: a must be in 0..1, not 2.0"),
        ("rmat:scale=3,n=none", "rmat: n must be an integer such as 1000, 1_000 or 1e3, not 'none'"),
        (
            "rmat",
            "rmat: scale not given; parameters: "
            "scale, edgefactor=16, a=0.57, b=0.19, c=0.19, seed=1, directed=false, [n], [m]",
        ),
        ("star:n=0", "star: n must be in 1..1099511627776, not 0"),
        ("complete:n=1073741825", "complete: n must be in 1..1073741824, not 1073741825"),
        ("tree:n=5,arity=0", "tree: arity must be in 1..1099511627776, not 0"),
        ("random_tree:n=0", "random_tree: n must be in 1..1099511627776, not 0"),
        ("geometric:n=5", "geometric: radius not given; parameters: n, radius, seed=1"),
        ("corpus", "corpus: name not given; parameters: name, scale_down=1"),
        ("corpus:cage15,4", "corpus: '4' is not parameter=value; parameters: name, scale_down=1"),
        ("corpus:cage15,name=cage15", "corpus: name is given twice; parameters: name, scale_down=1"),
        ("corpus:cage15,scale-down=257", "corpus: scale_down must be in 1..256, not 257"),
        ("path:n=0", "path: n must be in 1..1099511627776, not 0"),
    ],
)
def test_a_wrong_spec_is_explained(spec: str, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=f"^{re.escape(message)}$"):
        parse(spec)


@pytest.mark.parametrize("value", [True, 3.0, "3", None])
def test_functions_refuse_what_is_no_integer(value: Any) -> None:
    with pytest.raises(InvalidOptionError, match=r"^path: n must be an integer in 1\.\.1099511627776, not "):
        path(value)


def test_functions_take_numpy_integers() -> None:
    assert kronecker(np.int32(40)) == kronecker(40)
    assert grid3d(np.uint16(10321)) == grid3d(10321)


def test_directed_must_be_a_bool() -> None:
    with pytest.raises(InvalidOptionTypeError, match="^directed must be True or False, not 'false'$"):
        uniform(1, 1, directed="false")


@pytest.mark.parametrize(
    "text",
    [
        "kronecker",
        "kronecker:",
        "kronecker:18",
        "kroneker:scale=18",
        "grid4d:side=3,n=2",
        "path:n=5",
        "graph:",
        "uniform",
        "corpus:europe.osm",
        "corpus:europe.osm,scale-down=2",
    ],
)
def test_is_a_spec(text: str) -> None:
    assert is_spec(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "graph",
        "graph.mtx",
        "dir/kronecker:scale=3",
        "./path",
        "path/edges.txt",
        "s3://bucket/x",
        "s3://bucket/x=3",
        "path://bucket/x",
        "gcs://bucket/key=value",
        "simplecache::s3://bucket/x",
        "C:\\x",
        "C:",
        "C:x=3",
        "path:\\x",
        "/data/a:b=3",
        "host:8786",
    ],
)
def test_is_not_a_spec(text: str) -> None:
    assert not is_spec(text)
