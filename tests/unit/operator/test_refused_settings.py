"""Settings of running brokers: what they refuse is a person's matter, what fails otherwise is tried again."""

import asyncio
from typing import Any, cast

import pytest

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka import configs
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kube import rolling


def put(monkeypatch: pytest.MonkeyPatch, code: ErrorCode) -> rolling.Rolled:
    async def refuse(*_: Any) -> None:
        raise KafkaError(code, "no")

    monkeypatch.setattr(configs, "alter_default_broker_configs", refuse)
    rolled = rolling.Rolled()
    asyncio.run(rolling._set(cast(KafkaClient, None), {"log.retention.ms": "5"}, rolled))
    return rolled


def test_a_value_that_brokers_do_not_take_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert put(monkeypatch, ErrorCode.invalid_config).refused == {"log.retention.ms": "no"}


def test_that_there_is_no_controller_for_a_moment_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KafkaError):
        put(monkeypatch, ErrorCode.not_controller)
