"""Sessions, and the connections and origins from which logins are accepted."""

import asyncio
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla_broker.config import Config
from ottla_broker.console.access import is_private_connection
from ottla_broker.console.login import is_same_origin
from ottla_broker.console.password_login import find_credentials
from ottla_broker.console.sessions import IDLE_S, MAX_AGE_S, MAX_SESSIONS, Login, Sessions
from ottla_broker.security.principal import Principal
from ottla_broker.security.scram import MECHANISMS, make_credential
from tests.unit.config.api_broker import broker_with_topic

SCRAM = {
    "listeners": "IN://127.0.0.1:1,OUT://127.0.0.1:2",
    "listener.security.protocol.map": "IN:PLAINTEXT,OUT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "IN",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
}


ALICE = Principal("User", "alice")


def config(**settings: str) -> Config:
    return Config.of({"log.dirs": "/data", **settings})


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def run_with_user(folder: Path, check: Any) -> None:
    async def scenario() -> None:
        async with broker_with_topic(folder) as broker:
            key = ("alice", MECHANISMS["SCRAM-SHA-512"])
            broker.image.scram_credentials[key] = make_credential(key[1], "secret", b"salt", 4096)
            clock = Clock()
            broker.config = config(**SCRAM)
            login = Login(ALICE, find_credentials=partial(find_credentials, broker, "OUT", "alice"))
            check(broker, Sessions(clock), clock, key, login)

    asyncio.run(scenario())


def test_session_ends_when_it_is_idle_or_old(tmp_path: Path) -> None:
    def check(broker: Any, sessions: Sessions, clock: Clock, key: Any, login: Login) -> None:
        idle, used = sessions.open(login), sessions.open(login)
        assert idle != used
        while clock.now_s < MAX_AGE_S:
            clock.now_s += IDLE_S
            assert (sessions.find(used) is not None) == (clock.now_s <= MAX_AGE_S)
        clock.now_s += 1
        assert sessions.find(used) is None
        assert sessions.find(idle) is None

    run_with_user(tmp_path, check)


def test_looking_whether_a_session_is_open_does_not_keep_it_open(tmp_path: Path) -> None:
    def check(broker: Any, sessions: Sessions, clock: Clock, key: Any, login: Login) -> None:
        token = sessions.open(login)
        clock.now_s = IDLE_S
        assert sessions.is_open(token)
        clock.now_s = IDLE_S + 1
        assert not sessions.is_open(token)

    run_with_user(tmp_path, check)


def test_session_ends_when_the_password_changes_or_the_user_is_removed(tmp_path: Path) -> None:
    def check(broker: Any, sessions: Sessions, clock: Clock, key: Any, login: Login) -> None:
        first = sessions.open(login)
        assert sessions.find(first) is not None
        broker.image.scram_credentials[key] = make_credential(key[1], "other", b"salt", 4096)
        assert sessions.find(first) is None
        second = sessions.open(login)
        del broker.image.scram_credentials[key]
        assert sessions.find(second) is None

    run_with_user(tmp_path, check)


def test_sessions_are_bounded_and_closed(tmp_path: Path) -> None:
    def check(broker: Any, sessions: Sessions, clock: Clock, key: Any, login: Login) -> None:
        tokens = [sessions.open(login) for _ in range(MAX_SESSIONS + 1)]
        assert sessions.find(tokens[0]) is None
        assert sessions.find(tokens[-1]) is not None
        sessions.close(tokens[-1])
        sessions.close("unknown")
        assert sessions.find(tokens[-1]) is None
        assert sessions.find("") is None

    run_with_user(tmp_path, check)


def test_session_ends_when_the_token_of_its_login_expires() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    short, long = sessions.open(Login(ALICE, lifetime_s=60)), sessions.open(Login(ALICE, lifetime_s=10 * MAX_AGE_S))
    clock.now_s = 60
    assert sessions.is_open(short)
    clock.now_s = 61
    assert not sessions.is_open(short)
    clock.now_s = IDLE_S
    assert sessions.find(long) is not None


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
    assert is_private_connection(http) is expected


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
