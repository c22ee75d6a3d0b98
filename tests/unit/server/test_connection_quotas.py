"""Connections that are accepted at once, later, or not at all."""

import pytest

from ottla_broker.config import Config
from ottla_broker.connection_quotas import MAX_WAIT_S, ConnectionQuotas, Room
from ottla_broker.security.client_quota_manager import ClientQuotaManager, QuotaWindows

HOST = "10.0.0.1"
TWO_LISTENERS = "BROKERS://127.0.0.1:0,CLIENTS://127.0.0.1:0"


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def quotas(clock: Clock | None = None, **settings: str) -> ConnectionQuotas:
    """Limits of a broker with the listeners BROKERS, which is for brokers, and CLIENTS."""
    base = {
        "log.dirs": "/nowhere",
        "listeners": TWO_LISTENERS,
        "listener.security.protocol.map": "BROKERS:PLAINTEXT,CLIENTS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
    }
    config = Config.of(base | {name.replace("_", "."): value for name, value in settings.items()})
    quota_clock = clock or Clock()
    return ConnectionQuotas(config, ClientQuotaManager(QuotaWindows(), quota_clock), quota_clock)


def test_listener_has_a_limit_of_its_own() -> None:
    limits = quotas(listener_name_clients_max_connections="2", max_connections="10")
    for _ in range(2):
        assert limits.check_room("CLIENTS", HOST) is Room.AVAILABLE
        limits.add("CLIENTS", HOST)
    assert limits.check_room("CLIENTS", HOST) is Room.EXHAUSTED
    assert limits.check_room("BROKERS", HOST) is Room.AVAILABLE
    limits.remove("CLIENTS", HOST)
    assert limits.check_room("CLIENTS", HOST) is Room.AVAILABLE
    assert limits.refused == 1


def test_brokers_get_in_where_clients_have_taken_all_connections() -> None:
    limits = quotas(max_connections="1")
    limits.add("CLIENTS", HOST)
    assert limits.check_room("CLIENTS", HOST) is Room.EXHAUSTED
    assert limits.check_room("BROKERS", HOST) is Room.FOR_BROKERS
    alone = quotas(max_connections="1", listeners="BROKERS://127.0.0.1:0")
    alone.add("BROKERS", HOST)
    assert alone.check_room("BROKERS", HOST) is Room.EXHAUSTED


def test_connections_above_the_rate_wait_in_turn() -> None:
    clock = Clock()
    limits = quotas(clock, max_connection_creation_rate="2")
    burst = 20  # ten seconds' worth
    assert [limits.count_connection("CLIENTS", HOST) for _ in range(burst + 3)] == [0.0] * burst + [0.5, 1.0, 1.5]
    clock.now_s += 2
    assert limits.count_connection("CLIENTS", HOST) == 0.0
    assert limits.count_connection("CLIENTS", HOST) == 0.5


def test_connection_that_would_wait_too_long_is_refused() -> None:
    limits = quotas(max_connection_creation_rate="1")
    waits = [limits.count_connection("CLIENTS", HOST) for _ in range(30)]
    assert waits[:20] == [0.0] * 10 + [float(number) for number in range(1, 11)]
    assert waits[20:] == [None] * 10 and waits[19] == MAX_WAIT_S
    assert limits.refused == 10


def test_connections_of_brokers_count_for_the_rate_and_do_not_wait() -> None:
    limits = quotas(max_connection_creation_rate="1")
    assert [limits.count_connection("BROKERS", HOST) for _ in range(12)] == [0.0] * 12
    assert limits.count_connection("CLIENTS", HOST) == 3.0


def test_listener_has_a_rate_of_its_own() -> None:
    limits = quotas(listener_name_clients_max_connection_creation_rate="1")
    assert [limits.count_connection("CLIENTS", HOST) for _ in range(11)][-1] == 1.0
    assert [limits.count_connection("BROKERS", HOST) for _ in range(40)] == [0.0] * 40


def test_refused_connection_is_logged_with_the_rate_that_it_exceeds(caplog: pytest.LogCaptureFixture) -> None:
    assert quotas(max_connection_creation_rate="0").count_connection("CLIENTS", HOST) is None
    assert quotas(listener_name_clients_max_connection_creation_rate="0").count_connection("CLIENTS", HOST) is None
    assert caplog.messages == [
        f"refused connection from {HOST}: max.connection.creation.rate=0 reached",
        f"refused connection from {HOST}: listener.name.clients.max.connection.creation.rate=0 reached",
    ]
