"""The throttle of a move, taken off."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka import throttle
from ottla_operator.kafka.client import KafkaClient
from tests.unit.operator.loop import on_loop


class Brokers:
    """`codes`: topic → what altering it gives. `asked`: what was altered, by name."""

    def __init__(self, **codes: ErrorCode) -> None:
        self.codes = codes
        self.requested: list[str] = []

    async def send_to_controller(self, request: Any) -> SimpleNamespace:
        return await self.send(request)

    async def send(self, request: Any, broker: int | None = None) -> SimpleNamespace:
        names = [str(it.resource_name) for it in request.resources]
        self.requested += names
        answers = [(it, self.codes.get(it, ErrorCode.none)) for it in names]
        return SimpleNamespace(
            responses=[SimpleNamespace(resource_name=it, error_code=code, error_message=None) for it, code in answers]
        )


@on_loop
async def test_a_topic_that_was_deleted_while_it_moved_leaves_no_broker_throttled() -> None:
    brokers = Brokers(gone=ErrorCode.unknown_topic_or_partition)
    await throttle.remove_throttle(cast(KafkaClient, brokers), [1, 2], ["gone", "there"])
    assert brokers.requested == ["gone", "there", "1", "2"]


@on_loop
async def test_what_brokers_refuse_is_an_error() -> None:
    brokers = Brokers(there=ErrorCode.topic_authorization_failed)
    with pytest.raises(KafkaError):
        await throttle.remove_throttle(cast(KafkaClient, brokers), [1], ["there"])
