"""SASL on one connection, with this project's own client at the other end."""

import pytest

from ottla_broker.security import sasl_session
from ottla_broker.security.jaas import PLAIN_MODULE, SCRAM_MODULE, parse_jaas_config
from ottla_broker.security.principal import Principal
from ottla_broker.security.sasl_session import ListenerSasl, SaslSession
from ottla_broker.security.scram import (
    MECHANISMS,
    ScramCredential,
    ScramMechanism,
    make_credential,
    parse_add_scram,
)
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.sasl import ScramClient

USER, PASSWORD = "al,i=ce", "pässword"
SALT = b"0123456789"


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def find_credential(user: str, mechanism: ScramMechanism) -> ScramCredential | None:
    return make_credential(mechanism, PASSWORD, SALT, 4096) if user == USER else None


def new_session(clock: Clock | None = None, lifetime_s: float = 0.0) -> SaslSession:
    mechanisms = ("PLAIN", *MECHANISMS)
    sasl = ListenerSasl(mechanisms, {USER: PASSWORD, "bob": "b"}, dict.fromkeys(mechanisms, lifetime_s))
    return SaslSession(sasl, find_credential, clock or Clock())


def log_in_by_scram(session: SaslSession, mechanism: str, password: str = PASSWORD, user: str = USER) -> None:
    client = ScramClient(mechanism, user, password, "clients-nonce")
    session.begin(mechanism, bare_tokens=False)
    final = client.final_message(session.respond(client.first_message))
    client.verify(session.respond(final))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_scram_proves_the_password_to_both_sides(mechanism: str) -> None:
    session = new_session()
    log_in_by_scram(session, mechanism)
    assert session.principal == Principal("User", USER) and not session.has_failed
    assert session.may_send(ApiKey.PRODUCE)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [(USER, "wrong"), ("nobody", PASSWORD)])
def test_wrong_password_and_unknown_user_fail_at_the_same_step_with_the_same_text(
    mechanism: str, user: str, password: str
) -> None:
    session = new_session()
    with pytest.raises(KafkaError, match=f"due to invalid credentials with SASL mechanism {mechanism}") as refused:
        log_in_by_scram(session, mechanism, password, user)
    assert refused.value.code is ErrorCode.sasl_authentication_failed
    assert session.principal is None and session.has_failed and not session.may_send(ApiKey.API_VERSIONS)


def test_unknown_user_gets_the_same_salt_each_time_and_others_get_another() -> None:
    def salt_of(user: str) -> str:
        session = new_session()
        session.begin("SCRAM-SHA-256", bare_tokens=False)
        first = session.respond(ScramClient("SCRAM-SHA-256", user, "any", "n").first_message)
        return first.decode().split(",")[1]

    assert salt_of("nobody") == salt_of("nobody") != salt_of("somebody")


def test_nonce_whose_server_part_is_wrong_is_refused_and_a_repeated_client_part_is_accepted() -> None:
    for before, last, accepted in (("clients-nonce", None, True), ("", "!", False)):
        session, client = new_session(), ScramClient("SCRAM-SHA-256", USER, PASSWORD, "clients-nonce")
        session.begin("SCRAM-SHA-256", bare_tokens=False)
        server_first = session.respond(client.first_message).decode()
        nonce, rest = server_first.removeprefix("r=").split(",", 1)
        final = client.final_message(server_first.encode()).decode()
        changed = final.replace(f"r={nonce}", f"r={before}{nonce[:-1]}{last or nonce[-1]}")
        with pytest.raises(KafkaError) as refused:  # the proof is for the nonce as the server sent it
            session.respond(changed.encode())
        assert ("invalid credentials" in str(refused.value)) == accepted, rest


def test_plain_checks_name_password_and_authorization_id() -> None:
    session = new_session()
    session.begin("PLAIN", bare_tokens=False)
    assert session.respond(f"\0{USER}\0{PASSWORD}".encode()) == b""
    assert session.principal == Principal("User", USER)
    for token in (b"\0bob\0wrong", b"\0nobody\0b", b"alice\0bob\0b", b"\0bob\0", b"bob", b"\0\xff\0b", b""):
        session = new_session()
        session.begin("PLAIN", bare_tokens=False)
        with pytest.raises(KafkaError) as refused:
            session.respond(token)
        assert refused.value.code is ErrorCode.sasl_authentication_failed and session.principal is None


@pytest.mark.parametrize(
    "token", [b"", b"n,,", b"p=tls-unique,,n=a,r=b", b"n,,n=a", b"n,a=other,n=a,r=b", b"\xff", b"n,,m=x,n=a,r=b"]
)
def test_malformed_first_message_of_scram_fails_the_login(token: bytes) -> None:
    session = new_session()
    session.begin("SCRAM-SHA-256", bare_tokens=False)
    with pytest.raises(KafkaError) as refused:
        session.respond(token)
    assert refused.value.code is ErrorCode.sasl_authentication_failed and session.has_failed


def test_before_the_login_only_three_apis_are_served() -> None:
    session = new_session()
    assert {key for key in ApiKey if session.may_send(key)} == {
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
    }


def test_steps_out_of_order_and_unknown_mechanisms_are_refused() -> None:
    with pytest.raises(KafkaError) as refused:
        new_session().respond(b"\0bob\0b")
    assert refused.value.code is ErrorCode.illegal_sasl_state
    with pytest.raises(KafkaError) as refused:
        new_session().begin("GSSAPI", bare_tokens=False)
    assert refused.value.code is ErrorCode.unsupported_sasl_mechanism
    session = new_session()
    session.begin("PLAIN", bare_tokens=False)
    session.respond(b"\0bob\0b")
    with pytest.raises(KafkaError) as refused:  # sessions do not expire: there is nothing to authenticate again for
        session.begin("PLAIN", bare_tokens=False)
    assert refused.value.code is ErrorCode.illegal_sasl_state


def test_session_expires_unless_the_client_authenticates_again() -> None:
    clock = Clock()
    session = new_session(clock, lifetime_s=10.0)
    session.begin("PLAIN", bare_tokens=False)
    session.respond(b"\0bob\0b")
    assert session.lifetime_ms == 10_000
    clock.now_s += 9.0
    session.begin("PLAIN", bare_tokens=False)
    session.respond(b"\0bob\0b")
    clock.now_s += 9.0
    assert session.may_send(ApiKey.PRODUCE)
    clock.now_s += 1.0
    assert not session.may_send(ApiKey.PRODUCE) and session.may_send(ApiKey.SASL_HANDSHAKE)


def test_authenticating_again_keeps_principal_and_mechanism_and_waits_a_second() -> None:
    def authenticated(clock: Clock) -> SaslSession:
        session = new_session(clock, lifetime_s=10.0)
        session.begin("PLAIN", bare_tokens=False)
        session.respond(b"\0bob\0b")
        return session

    clock = Clock()
    session = authenticated(clock)
    with pytest.raises(KafkaError):
        session.begin("PLAIN", bare_tokens=False)  # within a second
    session = authenticated(clock)
    clock.now_s += 2.0
    with pytest.raises(KafkaError, match="the mechanism cannot change"):
        session.begin("SCRAM-SHA-256", bare_tokens=False)
    session = authenticated(clock)
    clock.now_s += 2.0
    session.begin("PLAIN", bare_tokens=False)
    with pytest.raises(KafkaError, match="Cannot change principals"):
        session.respond(f"\0{USER}\0{PASSWORD}".encode())


def test_where_a_login_is_optional_a_failed_one_still_ends_the_connection() -> None:
    session = SaslSession(ListenerSasl(("PLAIN",), {USER: PASSWORD}, is_optional=True), find_credential, Clock())
    assert session.may_send(ApiKey.PRODUCE) and session.principal is None
    session.begin("PLAIN", bare_tokens=False)
    with pytest.raises(KafkaError, match="Invalid username or password"):
        session.respond(f"\0{USER}\0wrong".encode())
    assert not session.may_send(ApiKey.PRODUCE)


def test_login_modules_are_read_as_kafka_writes_them() -> None:
    plain = parse_jaas_config(
        f'{PLAIN_MODULE} required username="admin" password="a;b\\"c" user_admin=\'x\' user_bob=b;'
    )
    assert (plain.username, plain.password, plain.users) == ("admin", 'a;b"c', {"admin": "x", "bob": "b"})
    assert parse_jaas_config(f"{SCRAM_MODULE} required;").users == {}
    for wrong in (
        "",
        f"{PLAIN_MODULE};",
        f"{PLAIN_MODULE} required a",
        "x.Y required;",
        f"{PLAIN_MODULE} required a=b",
    ):
        with pytest.raises(ValueError, match=r"login module|semicolon|form"):
            parse_jaas_config(wrong)


def test_first_users_are_read_from_the_command_line() -> None:
    name, mechanism, credential = parse_add_scram("SCRAM-SHA-512=[name=alice,password=secret]", SALT)
    assert (name, mechanism) == ("alice", ScramMechanism.SHA_512)
    assert credential == make_credential(ScramMechanism.SHA_512, "secret", SALT, 8192)
    for wrong in ("PLAIN=[name=a,password=b]", "SCRAM-SHA-256=name", "SCRAM-SHA-256=[name=a]"):
        with pytest.raises(ValueError, match="allowed: MECHANISM="):
            parse_add_scram(wrong, SALT)
    with pytest.raises(ValueError, match="iterations=1; allowed: 4096 to 16384"):
        parse_add_scram("SCRAM-SHA-256=[name=a,password=b,iterations=1]", SALT)


@pytest.mark.parametrize("user", [USER, "nobody"])
def test_known_and_unknown_users_cost_the_same_work(user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def record_name(mechanism: ScramMechanism, name: str, *more: object) -> ScramCredential:
        made.append(name)
        return make_credential(mechanism, PASSWORD, b"salt", 4096)

    monkeypatch.setattr(sasl_session, "decoy_credential", record_name)
    session = new_session()
    session.begin("SCRAM-SHA-512", bare_tokens=False)
    escaped = user.replace("=", "=3D").replace(",", "=2C")
    session.respond(f"n,,n={escaped},r=nonce".encode())
    assert made == [user]
