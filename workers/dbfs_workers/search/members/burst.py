"""A burst: what every rank of a gang makes without a message in between."""

from dataclasses import dataclass

from dbfs_workers.base.spec import RunSpec, TraversalPlace


@dataclass(frozen=True)
class Burst:
    """Consecutive traversals of a run, which every rank makes without a message in between. From rank 0.

    Attributes:
        turn: serial number of the turn.
        number: the gang's serial number of this burst.
        client: id of the client that the labels belong to.
        specs: the traversals, of positions if the graph is ordered by degree.
        first: index of the first of them in the run.
        following: number of traversals of the run in later bursts.
        deadline: seconds until the run's deadline.
        dropped: traversals whose labels are released first.
        each: most traversals of an answer; 0 for one answer at the end. The last answers have fewer and fewer, since
            the holder makes the results of the very last one while no traversal runs.
    """

    turn: int
    number: int
    client: str
    specs: RunSpec
    first: int
    following: int
    deadline: float
    dropped: tuple[TraversalPlace, ...]
    each: int
