"""The error code of a call that must raise KafkaError."""

from collections.abc import Awaitable, Callable

import pytest

from ottla_broker.wire.errors import ErrorCode, KafkaError


async def error_of(call: Awaitable[object]) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        await call
    return raised.value.code


def error_raised_by(function: Callable[..., object], *arguments: object, **named: object) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        function(*arguments, **named)
    return raised.value.code
