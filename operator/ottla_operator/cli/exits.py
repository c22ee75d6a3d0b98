"""Exit codes, and errors as one line."""

import asyncio
import sys
from collections.abc import Coroutine
from enum import IntEnum
from typing import Any, Final, TypeVar

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.brokers.link import BadAddress, Unreachable

T = TypeVar("T")


class Exit(IntEnum):
    done = 0
    failed = 1
    usage = 2
    not_found = 3
    unreachable = 4


NOT_FOUND: Final = frozenset(
    {ErrorCode.unknown_topic_or_partition, ErrorCode.group_id_not_found, ErrorCode.unknown_topic_id}
)


class Failure(Exception):
    """Ends the command with a code and one line, or several where several things are wrong."""

    def __init__(self, code: Exit, message: str) -> None:
        super().__init__(message)
        self.code = code


def tell(failure: Failure) -> None:
    for line in str(failure).splitlines():
        print(f"ottla: {line}", file=sys.stderr)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs a command's work; what brokers refuse, brokers that do not answer, and files that cannot be had, become a Failure."""
    try:
        return asyncio.run(work)
    except KafkaError as error:
        raise Failure(Exit.not_found if error.code in NOT_FOUND else Exit.failed, str(error)) from error
    except BadAddress as error:
        raise Failure(Exit.usage, str(error)) from error
    except Unreachable as error:
        raise Failure(Exit.unreachable, str(error)) from error
    except OSError as error:
        if error.filename is None:
            raise
        raise Failure(Exit.failed, f"{error.filename}: {error.strerror}") from error
