"""The exception that carries a protocol error code from where it is found to the handler that
responds, and the text of the system's errors in messages.

Codes and their meanings: https://kafka.apache.org/protocol#protocol_error_codes (as `kio` generates
them).
"""

import os
import ssl
from typing import Final

from kio.schema.errors import ErrorCode

__all__ = ["NO_ERROR", "ErrorCode", "KafkaError", "describe_os_error"]


class KafkaError(Exception):
    """Kafka's error code with a message for people, which should name the field, its value and what
    is allowed. None: the code says everything.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message

    def __repr__(self) -> str:
        return f"KafkaError({self.code.name}, {self.message!r})"


NO_ERROR: Final = KafkaError(ErrorCode.none)
"""Stands for success where each item of a response has an error code and a message."""


def describe_os_error(error: OSError) -> str:
    """The system's text of an error, in lower case. asyncio's own text names the call and the
    address in Python's notation.
    """
    if isinstance(error, ssl.SSLError):  # its errno is OpenSSL's own
        return str(getattr(error, "verify_message", "") or error.reason or error).lower()
    if error.errno and error.errno > 0:
        return os.strerror(error.errno).lower()
    return (error.strerror or str(error)).lower()  # the resolver's own numbers are below 0
