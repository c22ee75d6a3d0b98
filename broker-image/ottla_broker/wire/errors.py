"""The one exception that carries a protocol error code from the room that found it to the handler that answers.

Codes and their meaning: https://kafka.apache.org/protocol#protocol_error_codes (as `kio` generates them).
"""

from kio.schema.errors import ErrorCode

__all__ = ["ErrorCode", "KafkaError"]


class KafkaError(Exception):
    """A refusal with Kafka's error code and a sentence for people (names the field, the value, what is allowed)."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message

    def __repr__(self) -> str:
        return f"KafkaError({self.code.name}, {self.message!r})"
