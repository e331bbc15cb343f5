"""All planted faults."""

from tests.planted import cuda, exchange, levels, service, storage

FAULTS = (*cuda.FAULTS, *exchange.FAULTS, *levels.FAULTS, *service.FAULTS, *storage.FAULTS)
