"""The method of results that checks them."""

from dbfs.base.calls import part_of
from dbfs.cluster.deadline import bounded
from dbfs.features.validation.validate import validate
from dbfs.graph.result import BFSResult


@part_of("BFSResult")
class ValidationResult(BFSResult):
    """Validation."""

    @bounded()
    def validate(self) -> None:
        """Check the labels on the workers; ``dbfs.validate`` does the same and also returns counts."""
        validate(self.graph, self)
