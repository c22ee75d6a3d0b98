"""Removal of the throttle of a reassignment."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka import throttle
from ottla_operator.kafka.client import KafkaClient
from tests.unit.async_tests import async_test


class Brokers:
    """`codes`: error code by topic. `requested`: names of altered resources."""

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


@async_test
async def test_throttle_of_brokers_is_removed_although_a_topic_was_deleted() -> None:
    brokers = Brokers(deleted=ErrorCode.unknown_topic_or_partition)
    await throttle.remove_throttle(cast(KafkaClient, brokers), [1, 2], ["deleted", "existing"])
    assert brokers.requested == ["deleted", "existing", "1", "2"]


@async_test
async def test_rejected_removal_is_an_error() -> None:
    brokers = Brokers(existing=ErrorCode.topic_authorization_failed)
    with pytest.raises(KafkaError):
        await throttle.remove_throttle(cast(KafkaClient, brokers), [1], ["existing"])
