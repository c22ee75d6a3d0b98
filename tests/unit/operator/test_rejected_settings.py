"""Settings that running brokers reject are returned as rejected; other errors are raised."""

import asyncio
from typing import Any, ClassVar, cast

import pytest

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka import configs
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.plan.cluster_status import ObservedBroker
from ottla_operator.plan.settings import without_rejected
from ottla_operator.reconcile.platform import BrokerSet, ReconcileState
from ottla_operator.reconcile.rolling_restart import AppliedConfig, apply_config


class Brokers:
    """One broker, for which log.retention.ms was changed."""

    brokers: ClassVar = {1: ObservedBroker(1, True, {})}
    desired: ClassVar = {1: {"log.retention.ms": "5"}}
    state = ReconcileState()


def apply_rejected_setting(monkeypatch: pytest.MonkeyPatch, code: ErrorCode) -> AppliedConfig:
    """Applies a changed setting, which brokers reject with this code."""

    async def reject(*_: Any) -> None:
        raise KafkaError(code, "no")

    async def list_dynamic(*_: Any) -> set[str]:
        return {"log.retention.ms"}

    monkeypatch.setattr(configs, "alter_default_broker_configs", reject)
    monkeypatch.setattr(configs, "list_dynamic_broker_configs", list_dynamic)
    return asyncio.run(apply_config(cast(KafkaClient, object()), cast(BrokerSet, Brokers())))


def test_an_invalid_value_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    assert apply_rejected_setting(monkeypatch, ErrorCode.invalid_config).rejected == {"log.retention.ms": "no"}


def test_a_missing_controller_is_an_error_and_rejects_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KafkaError):
        apply_rejected_setting(monkeypatch, ErrorCode.not_controller)


def test_a_rejected_value_is_replaced_by_the_one_that_brokers_were_started_with() -> None:
    desired = {"log.retention.ms": "soon", "num.partitions": "3"}
    rejected = {"log.retention.ms": "soon"}
    assert without_rejected(desired, rejected, {"log.retention.ms": "5"}) == {**desired, "log.retention.ms": "5"}
    assert without_rejected(desired, rejected, None) == {"num.partitions": "3"}
    assert without_rejected(desired, {"log.retention.ms": "later"}, None) == desired
