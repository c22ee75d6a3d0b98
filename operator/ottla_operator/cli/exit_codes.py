"""Exit codes, and errors as lines on stderr."""

import asyncio
import sys
from collections.abc import Coroutine
from enum import IntEnum
from typing import Any, Final, TypeVar

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka.client import InvalidAddress, Unreachable

T = TypeVar("T")


class ExitCode(IntEnum):
    success = 0
    failed = 1
    usage = 2
    not_found = 3
    unreachable = 4


NOT_FOUND_ERRORS: Final = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.group_id_not_found,
        ErrorCode.unknown_topic_id,
        ErrorCode.transactional_id_not_found,
    }
)


class CommandError(Exception):
    """Ends the command with an exit code and a message: one line for each error."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def print_error(error: CommandError) -> None:
    for line in str(error).splitlines():
        print(f"ottla: {line}", file=sys.stderr)


def run_command(work: Coroutine[Any, Any, T]) -> T:
    """Runs a command's work. Errors of brokers, of the connection and of files become
    CommandErrors.
    """
    try:
        return asyncio.run(work)
    except KafkaError as error:
        code = ExitCode.not_found if error.code in NOT_FOUND_ERRORS else ExitCode.failed
        raise CommandError(code, str(error)) from error
    except InvalidAddress as error:
        raise CommandError(ExitCode.usage, str(error)) from error
    except Unreachable as error:
        raise CommandError(ExitCode.unreachable, str(error)) from error
    except OSError as error:
        if error.filename is None:
            raise
        raise CommandError(ExitCode.failed, f"{error.filename}: {error.strerror}") from error
