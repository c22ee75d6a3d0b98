"""Delegation tokens: logins as a token's owner, their expiry, and what the controller decides."""

import base64
import hashlib
import hmac
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.metadata.delegation_token_control import token_secret
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.records import DelegationTokenRecord, RemoveDelegationTokenRecord
from ottla_broker.security.delegation_tokens import DelegationToken, TokenLogin, TokenSecret
from ottla_broker.security.principal import Principal
from ottla_broker.security.sasl_session import ListenerSasl, SaslSession
from ottla_broker.security.scram import MECHANISMS, ScramMechanism
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.forwarding import read_principal, write_principal
from ottla_broker.wire.sasl import ScramClient
from tests.unit.async_tests import async_test
from tests.unit.broker_without_sockets import run_broker

SECRET = TokenSecret("a secret")
TOKEN = DelegationToken("id-of-token", "User:alice", "User:alice", ("User:bob",), 1000, 61_000, 100_000)
ALICE, BOB, CAROL = Principal("User", "alice"), Principal("User", "bob"), Principal("User", "carol")


def find_token(token_id: str, mechanism: ScramMechanism) -> TokenLogin | None:
    return SECRET.login_of(TOKEN, mechanism, 1000) if token_id == TOKEN.id else None


class TokenClient(ScramClient):
    """Adds the extension `tokenauth=true` to its first message, as Kafka's client does."""

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        super().__init__(mechanism, username, password, nonce)
        self._first_bare += ",tokenauth=true"


def session_and_client(mechanism: str, token_id: str, password: bytes) -> tuple[SaslSession, TokenClient]:
    session = SaslSession(ListenerSasl(tuple(MECHANISMS)), lambda user, it: None, lambda: 100.0, find_token=find_token)
    session.begin(mechanism, bare_tokens=False)
    return session, TokenClient(mechanism, token_id, base64.b64encode(password).decode(), "clients-nonce")


def exchange(session: SaslSession, client: ScramClient) -> None:
    client.verify(session.respond(client.final_message(session.respond(client.first_message))))


def test_hmac_is_that_of_kafka() -> None:
    """HMAC-SHA512 of the id under the secret, as Kafka's createHmac."""
    assert SECRET.hmac_of("id") == hmac.new(b"a secret", b"id", hashlib.sha512).digest()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_token_logs_in_as_its_owner_until_it_expires(mechanism: str) -> None:
    session, client = session_and_client(mechanism, TOKEN.id, SECRET.hmac_of(TOKEN.id))
    exchange(session, client)
    assert session.principal == ALICE and session.principal.token_authenticated
    assert session.expires_s == 160.0


@pytest.mark.parametrize(
    ("token_id", "password"), [(TOKEN.id, b"other"), ("unknown", SECRET.hmac_of("unknown")), ("", b"")]
)
def test_unknown_tokens_and_other_passwords_do_not_log_in(token_id: str, password: bytes) -> None:
    session, client = session_and_client("SCRAM-SHA-512", token_id, password)
    with pytest.raises(KafkaError) as failed:
        exchange(session, client)
    assert failed.value.code is ErrorCode.sasl_authentication_failed
    assert session.has_failed and session.principal is None


def test_envelope_says_that_a_client_has_logged_in_with_a_token() -> None:
    for given in (True, False):
        data = write_principal("User", "alice", token_authenticated=given)
        assert Principal(*read_principal(data)).token_authenticated is given


def test_image_keeps_tokens_in_snapshots() -> None:
    image = MetadataImage()
    image.apply_records([(0, DelegationTokenRecord(TOKEN))])
    copy = MetadataImage()
    copy.apply_records(enumerate(image.to_records(0)))
    assert copy.delegation_tokens == {TOKEN.id: TOKEN}
    copy.apply_records([(9, RemoveDelegationTokenRecord(TOKEN.id))])
    assert copy.delegation_tokens == {}


SETTINGS: dict[str, Any] = {
    "delegation_token_secret_key": "a secret",
    "delegation_token_max_lifetime_ms": "1000000",
    "delegation_token_expiry_time_ms": "1000",
}


@async_test
async def test_lifetimes_are_bounded(tmp_path: Path) -> None:
    async with run_broker(tmp_path, **SETTINGS) as broker:
        tokens = broker.active_controller().delegation_tokens
        longest = await tokens.create_token(ALICE, ALICE, [], -1)
        assert (longest.max_ms - longest.issued_ms, longest.expires_ms - longest.issued_ms) == (1_000_000, 1000)
        short = await tokens.create_token(ALICE, ALICE, [BOB], 100)
        assert short.max_ms == short.expires_ms == short.issued_ms + 100
        token_hmac = token_secret(broker.config).hmac_of(longest.id)
        expires_ms = await tokens.expire_token(token_hmac, ALICE, 10**9)
        assert expires_ms == longest.max_ms
        assert broker.image.delegation_tokens[longest.id].expires_ms == longest.max_ms
        for principal in (BOB, CAROL):
            with pytest.raises(KafkaError) as failed:
                await tokens.renew_token(token_hmac, principal, -1)
            assert failed.value.code is ErrorCode.delegation_token_owner_mismatch


@async_test
async def test_expired_tokens_are_removed(tmp_path: Path) -> None:
    async with run_broker(tmp_path, **SETTINGS) as broker:
        tokens = broker.active_controller().delegation_tokens
        expired = await tokens.create_token(ALICE, ALICE, [], -1)
        kept = await tokens.create_token(ALICE, ALICE, [], -1)
        started_ms = broker.runtime.now_ms()
        broker.runtime.now_ms = lambda: started_ms + 500
        await tokens.expire_token(token_secret(broker.config).hmac_of(expired.id), ALICE, 0)
        broker.runtime.now_ms = lambda: started_ms + 501
        with pytest.raises(KafkaError) as failed:
            await tokens.renew_token(token_secret(broker.config).hmac_of(expired.id), ALICE, -1)
        assert failed.value.code is ErrorCode.delegation_token_expired
        await tokens.remove_expired_tokens()
        assert set(broker.image.delegation_tokens) == {kept.id}


@async_test
async def test_without_a_secret_there_are_no_tokens(tmp_path: Path) -> None:
    async with run_broker(tmp_path) as broker:
        with pytest.raises(KafkaError) as failed:
            await broker.active_controller().delegation_tokens.create_token(ALICE, ALICE, [], -1)
        assert failed.value.code is ErrorCode.delegation_token_auth_disabled
