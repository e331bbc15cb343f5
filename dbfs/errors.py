"""The errors of dbfs: see ``dbfs_workers.errors`` for what each one means."""

from dbfs_workers.errors import (
    ClientError,
    DbfsError,
    DeadlineExceededError,
    EdgeInputError,
    FormatError,
    GraphTooLargeError,
    InvalidOptionError,
    InvalidVertexError,
    InvalidVertexTypeError,
    MissingFileError,
    NoWorkersError,
    ResultReleasedError,
    StaleRunError,
    TruncatedFileError,
    ValidationError,
    WorkerLostError,
)

__all__ = [
    "ClientError",
    "DbfsError",
    "DeadlineExceededError",
    "EdgeInputError",
    "FormatError",
    "GraphTooLargeError",
    "InvalidOptionError",
    "InvalidVertexError",
    "InvalidVertexTypeError",
    "MissingFileError",
    "NoWorkersError",
    "ResultReleasedError",
    "StaleRunError",
    "TruncatedFileError",
    "ValidationError",
    "WorkerLostError",
]
