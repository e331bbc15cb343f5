"""Validation of labels.

In: a graph on a gang of workers, and a result of it or labels from elsewhere. Out: the counts of a validation that
found no fault, or ``ValidationError``. The checks run on the workers (``dbfs_workers.features.validation.tasks``).
"""
