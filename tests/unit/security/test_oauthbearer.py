"""OAUTHBEARER: which tokens are accepted, and how an exchange goes. Tokens are signed by a real
library.
"""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ottla_broker.security import jwks
from ottla_broker.security.jwks import JsonWebKey, JsonWebKeySet, parse_key_set
from ottla_broker.security.oauth_token import (
    IdToken,
    InvalidToken,
    TokenRules,
    validate_id_token,
    validate_token,
)
from ottla_broker.security.oauthbearer import REJECTED, TokenValidator
from ottla_broker.security.principal import Principal
from ottla_broker.security.sasl_session import ListenerSasl, SaslSession
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.async_tests import async_test, virtual_time_test

jwt = pytest.importorskip("jwt", reason="PyJWT, a dependency of the broker, is not installed")
from cryptography.hazmat.primitives.asymmetric import ec, rsa  # noqa: E402

NOW = int(time.time())
DAY = 86_400  # longer than any run of the tests, which validate by the clock
RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())


def public_key(private: Any, key_id: str, **members: str) -> JsonWebKey:
    algorithm = jwt.algorithms.RSAAlgorithm if private is RSA_KEY else jwt.algorithms.ECAlgorithm
    return {**algorithm.to_jwk(private.public_key(), as_dict=True), "kid": key_id, **members}


KEYS: list[JsonWebKey] = [public_key(RSA_KEY, "rsa"), public_key(EC_KEY, "ec", alg="ES256", use="sig")]
CLAIMS: dict[str, Any] = {"sub": "alice@example.com", "iat": NOW, "exp": NOW + DAY}


def token(*, key: Any = RSA_KEY, algorithm: str = "RS256", headers: Any = None, **claims: Any) -> str:
    """A signed token with CLAIMS and `claims`, without those that are None."""
    given = {name: value for name, value in (CLAIMS | claims).items() if value is not None}
    token_headers = {"kid": "ec" if key is EC_KEY else "rsa"} if headers is None else headers
    encoded: str = jwt.encode(given, key, algorithm=algorithm, headers=token_headers)
    return encoded


@pytest.mark.parametrize(
    ("given", "rules"),
    [
        (token(), TokenRules()),
        (token(algorithm="PS384"), TokenRules()),
        (token(key=EC_KEY, algorithm="ES256"), TokenRules()),
        (token(headers={}), TokenRules()),  # one key suits the algorithm
        (token(exp=NOW - 1000), TokenRules(clock_skew_s=2 * DAY)),
        (token(nbf=NOW + 1000), TokenRules(clock_skew_s=2 * DAY)),
        (token(aud=["a", "kafka"]), TokenRules(audiences=("kafka", "other"))),
        (token(iss="https://issuer"), TokenRules(issuer="https://issuer")),
        (token(sub=None, email="alice@example.com"), TokenRules(subject_claim="email")),
        (token(scope=["a", "b"]), TokenRules()),
    ],
)
def test_valid_tokens_are_accepted(given: str, rules: TokenRules) -> None:
    assert validate_token(given, KEYS, rules).subject == "alice@example.com"


@pytest.mark.parametrize(
    ("given", "rules"),
    [
        ("nothing", TokenRules()),
        ("a.b.c", TokenRules()),
        (token() + "a", TokenRules()),
        (token(exp=NOW - 40), TokenRules()),
        (token(nbf=NOW + DAY), TokenRules()),
        (token(exp=None), TokenRules()),
        (token(iat=None), TokenRules()),
        (token(sub=None), TokenRules()),
        (token(sub=" "), TokenRules()),
        (token(sub=None, email=["a"]), TokenRules(subject_claim="email")),
        (token(aud="other"), TokenRules(audiences=("kafka",))),
        (token(), TokenRules(audiences=("kafka",))),
        (token(aud="kafka"), TokenRules()),  # as in Kafka: an audience that is not expected
        (token(iss="https://other"), TokenRules(issuer="https://issuer")),
        (token(), TokenRules(issuer="https://issuer")),
        (token(headers={"kid": "unknown"}), TokenRules()),
        (token(headers={"kid": "ec"}), TokenRules()),  # a key of another type
        (token(key=EC_KEY, algorithm="ES256", headers={"kid": "rsa"}), TokenRules()),
        (token(key=None, algorithm="none"), TokenRules()),
        (token(key="a secret that both sides know, 32+", algorithm="HS256"), TokenRules()),
        (token(key=rsa.generate_private_key(65537, 2048)), TokenRules()),
        (token(scope=["a", "a"]), TokenRules()),
    ],
)
def test_other_tokens_are_rejected(given: str, rules: TokenRules) -> None:
    with pytest.raises(InvalidToken):
        validate_token(given, KEYS, rules)


def test_public_key_is_no_shared_secret() -> None:
    """The classic attack: a token signed by HS256 with the text of the public key."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    pem = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    import base64
    import hashlib
    import hmac
    import json

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    signed = f"{part(json.dumps({'alg': 'HS256', 'kid': 'rsa'}).encode())}.{part(json.dumps(CLAIMS).encode())}"
    forged = f"{signed}.{part(hmac.new(pem, signed.encode(), hashlib.sha256).digest())}"
    with pytest.raises(InvalidToken):
        validate_token(forged, KEYS, TokenRules())


ID_RULES = TokenRules(audiences=("console",), issuer="https://issuer", subject_claim="email")
ID_CLAIMS: dict[str, Any] = {"iss": "https://issuer", "aud": "console", "nonce": "n", "email": "alice@example.com"}


@pytest.mark.parametrize("claims", [{}, {"aud": ["console"]}, {"aud": ["other", "console"], "azp": "console"}])
def test_id_token_of_this_login_is_accepted(claims: dict[str, Any]) -> None:
    given = token(**ID_CLAIMS | {"sub": "1234"} | claims)
    assert validate_id_token(given, KEYS, ID_RULES, "n") == IdToken("alice@example.com", (NOW + DAY) * 1000)


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "other"},
        {"nonce": None},
        {"aud": "other"},
        {"aud": None},
        {"aud": ["console", "other"]},
        {"azp": "other"},
        {"iss": "https://other"},
        {"iss": None},
        {"exp": NOW - 40},
        {"email": None},
    ],
)
def test_other_id_tokens_are_rejected(claims: dict[str, Any]) -> None:
    with pytest.raises(InvalidToken):
        validate_id_token(token(**ID_CLAIMS | claims), KEYS, ID_RULES, "n")


# One exchange


class Endpoint:
    """The endpoint of a key set, with its keys and the number of fetches. It fails if `keys` is
    None.
    """

    def __init__(self, keys: list[JsonWebKey] | None) -> None:
        self.keys = keys
        self.fetches = 0
        self._asked = asyncio.Event()

    async def fetch(self) -> list[JsonWebKey]:
        self.fetches += 1
        self._asked.set()
        if self.keys is None:
            raise OSError("it is down")
        return self.keys

    async def wait_until_asked(self, fetch_count: int) -> None:
        while self.fetches < fetch_count:
            self._asked.clear()
            await self._asked.wait()

    def key_set(self) -> JsonWebKeySet:
        return JsonWebKeySet(
            "https://idp", self.fetch, refresh_s=3600, retry_backoff_s=0.001, retry_backoff_max_s=0.002
        )


def first_message(given: str, authorization_id: str = "", more: str = "") -> bytes:
    name = f"a={authorization_id}" if authorization_id else ""
    return f"n,{name},\x01auth=Bearer {given}\x01{more}\x01".encode()


def new_session(keys: JsonWebKeySet, max_session_s: float = 0.0) -> SaslSession:
    sasl = ListenerSasl(("OAUTHBEARER",), max_session_s={"OAUTHBEARER": max_session_s})
    validator = TokenValidator(keys, TokenRules(clock_skew_s=2 * DAY), lambda: NOW * 1000)
    return SaslSession(sasl, lambda user, mechanism: None, lambda: 100.0, validator)


def known_keys() -> JsonWebKeySet:
    keys = Endpoint(KEYS).key_set()
    keys.keys = KEYS
    return keys


@async_test
async def test_session_ends_with_its_token_or_before() -> None:
    for max_session_s, expires_s in ((0.0, 100.0 + DAY), (60.0, 160.0), (2.0 * DAY, 100.0 + DAY)):
        session = new_session(known_keys(), max_session_s)
        session.begin("OAUTHBEARER", bare_tokens=False)
        assert session.respond(first_message(token(), "alice@example.com", "traceId=1\x01")) == b""
        assert (session.principal, session.expires_s) == (Principal("User", "alice@example.com"), expires_s)
        assert session.may_send(ApiKey.PRODUCE)


@async_test
async def test_token_that_expires_within_the_clock_skew_gives_a_session_that_is_over() -> None:
    session = new_session(known_keys())
    session.begin("OAUTHBEARER", bare_tokens=False)
    session.respond(first_message(token(exp=NOW - 1000)))
    assert (session.expires_s, session.lifetime_ms) == (100.0, 0)
    assert not session.may_send(ApiKey.PRODUCE)


@async_test
async def test_rejected_token_is_answered_as_by_kafka() -> None:
    session = new_session(known_keys())
    session.begin("OAUTHBEARER", bare_tokens=False)
    assert session.respond(first_message(token(exp=NOW - 3 * DAY))) == b'{"status":"invalid_token"}'
    assert session.principal is None and not session.may_send(ApiKey.PRODUCE)
    with pytest.raises(KafkaError) as failed:
        session.respond(b"\x01")
    assert (failed.value.code, failed.value.message) == (ErrorCode.sasl_authentication_failed, REJECTED)
    assert session.has_failed


@async_test
async def test_malformed_messages_and_other_authorization_ids_fail() -> None:
    for message in (
        b"",
        b"\x01",
        b"\xff\xfe",
        first_message(token(), "bob"),
        first_message(""),
        b"n,,\x01auth=Basic abc\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01host=a\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
    ):
        session = new_session(known_keys())
        session.begin("OAUTHBEARER", bare_tokens=False)
        with pytest.raises(KafkaError) as failed:
            session.respond(message)
        assert failed.value.code is ErrorCode.sasl_authentication_failed, message


@async_test
async def test_listener_without_an_endpoint_has_no_oauthbearer() -> None:
    session = SaslSession(ListenerSasl(("OAUTHBEARER",)), lambda user, mechanism: None, lambda: 100.0)
    with pytest.raises(KafkaError) as failed:
        session.begin("OAUTHBEARER", bare_tokens=False)
    assert failed.value.code is ErrorCode.unsupported_sasl_mechanism


# The key set


@pytest.fixture(autouse=True)
def no_pause_between_fetches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(jwks, "MIN_FETCH_INTERVAL_S", 0.0)
    yield


async def run_until(keys: JsonWebKeySet, endpoint: Endpoint, fetch_count: int) -> "asyncio.Task[None]":
    running = asyncio.get_running_loop().create_task(keys.run())
    await endpoint.wait_until_asked(fetch_count)
    return running


@async_test
async def test_endpoint_that_fails_is_asked_again_and_keys_stay() -> None:
    endpoint = Endpoint(None)
    keys = endpoint.key_set()
    running = await run_until(keys, endpoint, 3)
    endpoint.keys = KEYS
    await keys.wait_for_key("rsa")
    endpoint.keys = None
    failing = endpoint.fetches
    searching = asyncio.ensure_future(keys.wait_for_key("new"))
    await endpoint.wait_until_asked(failing + 3)
    assert keys.has_key("rsa")
    endpoint.keys = [*KEYS, public_key(RSA_KEY, "new")]
    await searching
    assert keys.has_key("new")
    running.cancel()


@async_test
async def test_login_with_a_new_key_waits_for_it() -> None:
    endpoint = Endpoint([])
    keys = endpoint.key_set()
    running = await run_until(keys, endpoint, 1)
    endpoint.keys = KEYS
    session = new_session(keys)
    session.begin("OAUTHBEARER", bare_tokens=False)
    message = first_message(token())
    await session.prepare(message)
    assert session.respond(message) == b"" and session.principal is not None
    running.cancel()


@virtual_time_test
async def test_key_that_stays_unknown_is_looked_for_once_a_minute() -> None:
    endpoint = Endpoint(KEYS)
    keys = endpoint.key_set()
    running = await run_until(keys, endpoint, 1)
    for _ in range(59):
        await keys.wait_for_key("forged")
        await asyncio.sleep(1)
    await keys.wait_for_key("x" * 1001)
    assert endpoint.fetches == 2
    await asyncio.sleep(1)
    await keys.wait_for_key("forged")
    assert endpoint.fetches == 3
    running.cancel()


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"keys": 1}', b'{"keys": [1]}', b"\xff"])
def test_other_documents_are_no_key_set(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_key_set(text)
