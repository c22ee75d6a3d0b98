"""Exit codes, and errors as one line."""

import asyncio
import sys
from collections.abc import Coroutine
from enum import IntEnum
from typing import Any, Final, TypeVar

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka.client import InvalidAddress, Unreachable

T = TypeVar("T")


class ExitCode(IntEnum):
    done = 0
    failed = 1
    usage = 2
    not_found = 3
    unreachable = 4


NOT_FOUND: Final = frozenset(
    {ErrorCode.unknown_topic_or_partition, ErrorCode.group_id_not_found, ErrorCode.unknown_topic_id}
)


class CommandError(Exception):
    """Ends the command with a code and one line, or several where several things are wrong."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def tell(failure: CommandError) -> None:
    for line in str(failure).splitlines():
        print(f"ottla: {line}", file=sys.stderr)


def run_command(work: Coroutine[Any, Any, T]) -> T:
    """Runs a command's work; what brokers refuse, brokers that do not answer, and files that cannot be had, become a Failure."""
    try:
        return asyncio.run(work)
    except KafkaError as error:
        raise CommandError(ExitCode.not_found if error.code in NOT_FOUND else ExitCode.failed, str(error)) from error
    except InvalidAddress as error:
        raise CommandError(ExitCode.usage, str(error)) from error
    except Unreachable as error:
        raise CommandError(ExitCode.unreachable, str(error)) from error
    except OSError as error:
        if error.filename is None:
            raise
        raise CommandError(ExitCode.failed, f"{error.filename}: {error.strerror}") from error
