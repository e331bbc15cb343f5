"""Validation of an asynchronous client's results."""

from dbfs.cluster.awaiting import awaited, unchanged
from dbfs.features.validation.result import ValidationResult
from dbfs.graph.asynchronous import AsyncBFSResult


class AsyncValidationResult(AsyncBFSResult):
    """See ``ValidationResult``."""

    validate = awaited(ValidationResult.validate, unchanged)
