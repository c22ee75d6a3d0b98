"""The rules for requests of clients that push metrics, as Kafka's ClientMetricsManager has them."""

from collections.abc import Callable
from uuid import UUID

import pytest

from ottla_broker.metadata.image import CLIENT_METRICS_RESOURCE, MetadataImage
from ottla_broker.telemetry import client_instances
from ottla_broker.telemetry.client_instances import ClientInstances, Push
from ottla_broker.wire.errors import ErrorCode, KafkaError

INSTANCE = UUID(int=9)
START = 1_000_000
INTERVAL = 1_000


class Telemetry:
    """Requests of clients to one broker. Each returns its error code, `none` if it is accepted."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.image.configs[CLIENT_METRICS_RESOURCE, "all"] = {"metrics": "*", "interval.ms": str(INTERVAL)}
        self.instances = ClientInstances(self.image, max_bytes=100)
        self.subscription_id = 0

    def get(self, now_ms: int, instance: UUID = INSTANCE) -> ErrorCode:
        def ask() -> None:
            self.subscription_id = self.instances.get_subscription(instance, {}, now_ms).id

        return code_of(ask)

    def push(
        self, now_ms: int, *, outdated: bool = False, ends: bool = False, compression: int = 0, size: int = 1
    ) -> ErrorCode:
        push = Push(INSTANCE, self.subscription_id + outdated, ends, compression, size)
        return code_of(lambda: self.instances.check_push(push, {}, now_ms))


def code_of(ask: Callable[[], object]) -> ErrorCode:
    try:
        ask()
    except KafkaError as error:
        return error.code
    return ErrorCode.none


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


def test_the_first_push_is_accepted_at_any_time_and_the_next_after_an_interval(telemetry: Telemetry) -> None:
    assert telemetry.get(START) is ErrorCode.none
    assert telemetry.push(START + 1) is ErrorCode.none
    assert telemetry.push(START + INTERVAL) is ErrorCode.throttling_quota_exceeded
    assert telemetry.push(START + 1 + INTERVAL) is ErrorCode.none


def test_a_subscription_is_asked_for_once_an_interval(telemetry: Telemetry) -> None:
    assert telemetry.get(START) is ErrorCode.none
    assert telemetry.get(START + INTERVAL - 1) is ErrorCode.throttling_quota_exceeded
    assert telemetry.get(START + INTERVAL) is ErrorCode.none


def test_a_client_gets_a_changed_subscription_at_once(telemetry: Telemetry) -> None:
    telemetry.get(START)
    telemetry.push(START + 10)
    telemetry.image.configs[CLIENT_METRICS_RESOURCE, "all"] = {"metrics": "a.", "interval.ms": str(INTERVAL)}
    telemetry.instances.on_subscriptions_changed()
    assert telemetry.push(START + 20) is ErrorCode.unknown_subscription_id
    assert telemetry.get(START + 21) is ErrorCode.none, "the last push told the client to ask"
    assert telemetry.push(START + 20 + INTERVAL) is ErrorCode.none


def test_errors_of_a_push_come_in_kafkas_order(telemetry: Telemetry) -> None:
    telemetry.get(START)
    telemetry.push(START)
    assert telemetry.push(START, outdated=True, compression=9, size=101) is ErrorCode.throttling_quota_exceeded
    assert telemetry.push(START + INTERVAL, outdated=True, compression=9, size=101) is ErrorCode.unknown_subscription_id
    assert telemetry.push(START + 2 * INTERVAL, compression=9, size=101) is ErrorCode.unsupported_compression_type
    assert telemetry.push(START + 3 * INTERVAL, size=101) is ErrorCode.telemetry_too_large


def test_a_terminating_push_is_accepted_at_any_time_and_is_the_last(telemetry: Telemetry) -> None:
    telemetry.get(START)
    telemetry.push(START)
    assert telemetry.push(START + 1, ends=True) is ErrorCode.none
    assert telemetry.push(START + 2 * INTERVAL) is ErrorCode.invalid_request


def test_instances_that_are_silent_or_too_many_are_dropped(
    telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    telemetry.get(START)
    telemetry.get(START + client_instances.MIN_EXPIRY_MS, UUID(int=10))
    assert len(telemetry.instances) == 1, "the silent one is gone"
    monkeypatch.setattr(client_instances, "MAX_INSTANCES", 3)
    for it in range(11, 20):
        telemetry.get(START + client_instances.MIN_EXPIRY_MS, UUID(int=it))
    assert len(telemetry.instances) == 3
