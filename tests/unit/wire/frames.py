"""Request frames as a broker receives them, and the number of examples for tests that decode
them.
"""

from typing import Any, Final

from hypothesis import HealthCheck, settings

from ottla_broker.wire.codec import write_request

few_examples: Final = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None)


def encode_request(key: int, version: int, request: Any, correlation_id: int = 5) -> bytearray:
    """A request frame without its size."""
    return write_request(key, version, correlation_id, "client", request)[4:]
