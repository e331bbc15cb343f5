"""Draw faults of one file with Cosmic Ray, plant them, and list those that the named tests let through.

python -m tests.planted.drawn COUNT SEED FILE TEST [TEST ...]
"""

import random
import sys
from collections import defaultdict
from itertools import islice

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

from tests.planted.__main__ import plant
from tests.support.planting import ROOT, Fault


def drawn(count: int, seed: int, file: str, tests: tuple[str, ...]) -> list[Fault]:
    """Return at most ``count`` faults of a file, each at a place of its own."""
    source, draw = (ROOT / file).read_text(), random.Random(seed)
    nodes = list(ast_nodes(get_ast(source)))
    places = defaultdict(list)
    # Most bars stand in types. Operators with arguments replace the variables that the arguments name.
    kinds = [get_operator(name) for name in operator_names() if "Operator_BitOr" not in name]
    for kind in (kind() for kind in kinds if not kind.arguments()):
        for occurrence, place in enumerate(place for node in nodes for place in kind.mutation_positions(node)):
            places[place].append((kind, occurrence))
    order = draw.sample(sorted(places), len(places))
    faults = (_fault(file, source, mutate_code(source, *draw.choice(places[place])), tests) for place in order)
    return list(islice((fault for fault in faults if not fault.problem()), count))


def _fault(file: str, source: str, changed: str, tests: tuple[str, ...]) -> Fault:
    """Return the fault with the lines that differ, and with lines before them until the text is there only once."""
    old, new = source.splitlines(keepends=True), changed.splitlines(keepends=True)
    first = next(i for i in range(len(old)) if old[i] != new[i])
    same = next(i for i in range(len(old)) if old[~i] != new[~i])
    while source.count("".join(old[first : len(old) - same])) > 1:
        first -= 1
    return Fault(file, "".join(old[first : len(old) - same]), "".join(new[first : len(new) - same]), tests)


if __name__ == "__main__":
    count, seed, file, *tests = sys.argv[1:]
    sys.exit(plant(drawn(int(count), int(seed), file, tuple(tests))))
