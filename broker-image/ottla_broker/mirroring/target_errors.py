"""Tells errors of this cluster, the target of a mirror, from those of the mirror's source."""

from collections.abc import Iterator
from contextlib import contextmanager

from ottla_broker.wire.errors import KafkaError


class TargetClusterError(Exception):
    """This cluster failed a step of a synchronisation. `__cause__`: its error."""


@contextmanager
def as_target_errors() -> Iterator[None]:
    """Inside the block, errors of requests are those of this cluster: raises TargetClusterError."""
    try:
        yield
    except (KafkaError, OSError, TimeoutError) as error:
        raise TargetClusterError(str(error) or "no response in time") from error
