"""All planted faults."""

from tests.planted import cuda, exchange, levels, protocols, service, storage

FAULTS = (*cuda.FAULTS, *exchange.FAULTS, *levels.FAULTS, *protocols.FAULTS, *service.FAULTS, *storage.FAULTS)
