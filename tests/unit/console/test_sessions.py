"""Sessions, and who may send passwords."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla_broker.config import Config, SettingError
from ottla_broker.console.access import find_login_listener, keeps_passwords_secret
from ottla_broker.console.login import is_same_origin
from ottla_broker.console.sessions import IDLE_S, MAX_AGE_S, MAX_SESSIONS, Sessions
from ottla_broker.security.scram import MECHANISMS, make_credential
from tests.unit.config.api_broker import broker_with_topic

SCRAM = {
    "listeners": "IN://127.0.0.1:1,OUT://127.0.0.1:2",
    "listener.security.protocol.map": "IN:PLAINTEXT,OUT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "IN",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
}
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


def config(**settings: str) -> Config:
    return Config.of({"log.dirs": "/data", **settings})


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def scenario_with_user(folder: Path, check: Any) -> None:
    async def scenario() -> None:
        async with broker_with_topic(folder) as broker:
            key = ("alice", MECHANISMS["SCRAM-SHA-512"])
            broker.image.scram_credentials[key] = make_credential(key[1], "secret", b"salt", 4096)
            clock = Clock()
            broker.config = config(**SCRAM)
            check(broker, Sessions(broker, "OUT", clock), clock, key)

    asyncio.run(scenario())


def test_session_ends_when_it_is_idle_or_old(tmp_path: Path) -> None:
    def check(broker: Any, sessions: Sessions, clock: Clock, key: Any) -> None:
        idle, used = sessions.open("alice"), sessions.open("alice")
        assert idle != used
        while clock.now_s < MAX_AGE_S:
            clock.now_s += IDLE_S
            assert (sessions.find(used) is not None) == (clock.now_s <= MAX_AGE_S)
        clock.now_s += 1
        assert sessions.find(used) is None
        assert sessions.find(idle) is None

    scenario_with_user(tmp_path, check)


def test_looking_whether_a_session_is_open_does_not_keep_it_open(tmp_path: Path) -> None:
    def check(broker: Any, sessions: Sessions, clock: Clock, key: Any) -> None:
        token = sessions.open("alice")
        clock.now_s = IDLE_S
        assert sessions.is_open(token)
        clock.now_s = IDLE_S + 1
        assert not sessions.is_open(token)

    scenario_with_user(tmp_path, check)


def test_session_ends_when_the_password_changes_or_the_user_is_removed(tmp_path: Path) -> None:
    def check(broker: Any, sessions: Sessions, clock: Clock, key: Any) -> None:
        first = sessions.open("alice")
        assert sessions.find(first) is not None
        broker.image.scram_credentials[key] = make_credential(key[1], "other", b"salt", 4096)
        assert sessions.find(first) is None
        second = sessions.open("alice")
        del broker.image.scram_credentials[key]
        assert sessions.find(second) is None

    scenario_with_user(tmp_path, check)


def test_sessions_are_bounded_and_closed(tmp_path: Path) -> None:
    def check(broker: Any, sessions: Sessions, clock: Clock, key: Any) -> None:
        tokens = [sessions.open("alice") for _ in range(MAX_SESSIONS + 1)]
        assert sessions.find(tokens[0]) is None
        assert sessions.find(tokens[-1]) is not None
        sessions.close(tokens[-1])
        sessions.close("unknown")
        assert sessions.find(tokens[-1]) is None
        assert sessions.find("") is None

    scenario_with_user(tmp_path, check)


def test_login_listener_is_one_with_passwords() -> None:
    assert find_login_listener(config()) is None
    assert find_login_listener(config(**SCRAM)) == "OUT"
    both = {
        **SCRAM,
        "listener.security.protocol.map": "IN:SASL_PLAINTEXT,OUT:SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.in.scram-sha-512.sasl.jaas.config": MODULE.replace(";", ' username="b" password="b";'),
    }
    assert find_login_listener(config(**both)) == "OUT"


def test_rules_without_passwords_are_refused_with_the_reason() -> None:
    with pytest.raises(SettingError, match=r"no listener has them, while clients .*authorizer.class.name="):
        find_login_listener(config(**{"authorizer.class.name": "StandardAuthorizer"}))


@pytest.mark.parametrize(
    ("remote", "secure", "expected"),
    [
        ("127.0.0.1", False, True),
        ("::1", False, True),
        ("::ffff:127.0.0.1", False, True),
        ("10.0.0.1", False, False),
        ("::ffff:10.0.0.1", False, False),
        ("10.0.0.1", True, True),
        (None, False, False),
    ],
)
def test_passwords_cross_no_network_in_the_clear(remote: str | None, secure: bool, expected: bool) -> None:
    http: Any = SimpleNamespace(remote=remote, secure=secure)
    assert keeps_passwords_secret(http) is expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Origin": "http://here:1"}, True),
        ({"Origin": "https://here:1"}, True),
        ({"Origin": "http://here:1", "Sec-Fetch-Site": "same-origin"}, True),
        ({"Origin": "http://here:1", "Sec-Fetch-Site": "same-site"}, False),
        ({"Origin": "http://here:2"}, False),
        ({"Origin": "http://here"}, False),
        ({"Origin": "null"}, False),
        ({}, False),
    ],
)
def test_forms_are_taken_from_the_same_origin_only(headers: dict[str, str], expected: bool) -> None:
    http: Any = SimpleNamespace(headers=headers, host="here:1")
    assert is_same_origin(http) is expected
