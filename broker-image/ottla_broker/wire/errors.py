"""The exception that carries a protocol error code from where it is found to the handler that
responds.

Codes and their meanings: https://kafka.apache.org/protocol#protocol_error_codes (as `kio` generates
them).
"""

from kio.schema.errors import ErrorCode

__all__ = ["ErrorCode", "KafkaError"]


class KafkaError(Exception):
    """Kafka's error code with a message for people, which names the field, its value and what is
    allowed.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message

    def __repr__(self) -> str:
        return f"KafkaError({self.code.name}, {self.message!r})"
