"""Transition matrix of Graph500's random generator, in Python integers.

Source: a multiple recursive generator of order 5 modulo 2^31 - 1 (L'Ecuyer), as in the Graph500 reference code. In a
step, ``(107374182 z1 + 104480 z5) mod (2^31 - 1)`` becomes z1, and the other words move up by one. So skipping k steps
multiplies the state by the k-th power of a 5 x 5 matrix.
"""

PRIME = 2**31 - 1

State = tuple[int, ...]
Matrix = tuple[State, ...]

STEP: Matrix = (
    (107374182, 0, 0, 0, 104480),
    (1, 0, 0, 0, 0),
    (0, 1, 0, 0, 0),
    (0, 0, 1, 0, 0),
    (0, 0, 0, 1, 0),
)
_IDENTITY: Matrix = tuple(tuple(int(row == column) for column in range(5)) for row in range(5))


def seed_state(seed1: int, seed2: int) -> State:
    """Return the state (z1..z5) of two 64-bit user seeds."""
    low = 2**30 - 1
    return (
        1 + (seed1 & low),
        1 + (seed1 >> 30 & low),
        1 + (seed2 & low),
        1 + (seed2 >> 30 & low),
        1 + (seed1 >> 60) + (seed2 >> 60 << 4),
    )


def apply(matrix: Matrix, state: State) -> State:
    """Return matrix times state."""
    return tuple(sum(a * z for a, z in zip(row, state, strict=True)) % PRIME for row in matrix)


def power(matrix: Matrix, exponent: int) -> Matrix:
    """Return the matrix to the power ``exponent`` (0 or more), by squaring."""
    result = _IDENTITY
    while exponent:
        if exponent & 1:
            result = _product(result, matrix)
        matrix = _product(matrix, matrix)
        exponent >>= 1
    return result


def _product(left: Matrix, right: Matrix) -> Matrix:
    columns = tuple(zip(*right, strict=True))
    return tuple(apply(columns, row) for row in left)
