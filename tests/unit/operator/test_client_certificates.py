"""Certificates that a Cluster's own authority issues to Users, and the principals in them."""

import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import pkcs12
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.security.principal import principal_from_certificate
from ottla_operator.certificates import x509
from ottla_operator.certificates.client_certificate import (
    NoPrincipal,
    certificate_subject,
    maintain_client_certificate,
    make_stores,
    principal_name,
)
from ottla_operator.certificates.internal_authority import maintain_certificates, read_authorities
from ottla_operator.plan.certificate_renewal import Validity
from ottla_operator.plan.source_credentials import ObservedSecret
from ottla_operator.plan.user_records import UserRecord, plan_revocations, renamed_records
from ottla_operator.plan.users import UserResource
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.user import User
from tests.unit.operator import samples
from tests.unit.operator.tls_handshake import shake_hands

DAY = 86_400
MUTUAL = {"name": "safe", "port": 9094, "tls": True, "authentication": "TLS"}
TLS = {"type": "TLS"}


def cluster(rules: str = "", tls: Any = None) -> Cluster:
    config = {"ssl.principal.mapping.rules": rules} if rules else {}
    return Cluster.parse(samples.cluster(listeners=[MUTUAL], tls=tls or {"issuer": "Internal"}, config=config))


def user(name: str | None = None, **spec: Any) -> User:
    named = {} if name is None else {"userName": name}
    return User.parse(samples.user(**{"authentication": TLS, **named, **spec}))


@given(
    st.text(
        st.characters(min_codepoint=32, max_codepoint=0x2FFF, exclude_categories=["Cs", "Cc"]), min_size=1, max_size=64
    ).filter(lambda name: len(name.encode()) <= x509.MAX_COMMON_NAME)
)
def test_brokers_give_a_user_the_principal_that_the_operator_writes_rules_for(name: str) -> None:
    if "CN=" in name:
        return
    authority = x509.create_authority("demo", 1, Validity(0, DAY))
    subject = certificate_subject(user(name))
    certificate, key = x509.issue_client_certificate(authority, subject, Validity(0, DAY))
    found = x509.read_certificate(certificate, key, [authority])
    assert found is not None and found.subject == subject
    peer = {"subject": ((("commonName", name),),)}
    assert str(principal_from_certificate(peer)) == f"User:{principal_name(user(name), cluster())}"


@pytest.mark.parametrize(
    ("name", "rules", "principal"),
    [
        (None, "", "CN=alice"),
        ("Alice, Ltd.", "", "CN=Alice\\, Ltd."),
        ("CN=Alice,OU=Sales,O=Example", "", "CN=Alice,OU=Sales,O=Example"),
        ("CN=Alice,O=Example", "RULE:^CN=([^,]+),.*$/$1/L,DEFAULT", "alice"),
        (None, "RULE:^CN=([^,]+),.*$/$1/L,DEFAULT", "CN=alice"),
    ],
)
def test_the_principal_is_the_subject_or_what_the_mapping_rules_make_of_it(
    name: str | None, rules: str, principal: str
) -> None:
    assert principal_name(user(name), cluster(rules)) == principal


@pytest.mark.parametrize(
    ("name", "rules", "message"),
    [
        ("x" * 65, "", "has 65 bytes in UTF-8; a certificate's CN has 1 to 64"),
        ("CN=a,emailAddress=b", "", "is no subject such as CN=alice,O=example"),
        ("O=a+CN=", "", "is no subject"),
        ("CN=a,1.2.840.113549.1.9.1=b", "", "allowed: CN, O, OU"),
        (None, "RULE:^CN=bob$/x/", "no rule of ssl.principal.mapping.rules=RULE:^CN=bob$/x/ matches CN=alice"),
    ],
)
def test_a_user_without_a_principal_is_refused(name: str | None, rules: str, message: str) -> None:
    with pytest.raises(NoPrincipal, match=r"^spec\.userName: ") as refused:
        principal_name(user(name), cluster(rules))
    assert message in str(refused.value)


def test_users_with_passwords_or_external_credentials_keep_their_names() -> None:
    assert principal_name(user("CN=a,O=b", authentication={"type": "External"}), cluster()) == "CN=a,O=b"
    assert principal_name(user("a", authentication={"type": "SCRAM-SHA-512"}), cluster()) == "a"
    assert principal_name(user("a"), cluster(tls={"secretRef": {"name": "x"}})) == "a"


def test_a_certificate_and_its_stores_are_renewed_in_time_and_for_another_authority(tmp_path: Any) -> None:
    now = time.time()
    made = maintain_certificates(cluster(), {}, {}, ["localhost"], now)
    secrets = {"demo-ca": ObservedSecret(made.authority, "1")}
    first = maintain_client_certificate(user(), cluster(), {}, secrets, now)
    assert first is not None and first.issue_reason
    assert maintain_client_certificate(user(), cluster(), {}, {}, now) is None
    pair = (first.certificate, first.key)
    assert "alice" in shake_hands(dict(made.brokers), first.authorities, pair, tmp_path)
    keystore, truststore = make_stores(first, {}, "secret")
    key, certificate, _ = pkcs12.load_key_and_certificates(keystore, b"secret")
    assert certificate is not None and key is not None
    existing: dict[str, str | bytes] = {
        "user.crt": first.certificate,
        "user.key": first.key,
        "ca.crt": first.authorities,
        "user.p12": keystore,
        "ca.p12": truststore,
        "user.password": "secret",
    }
    again = maintain_client_certificate(user(), cluster(), existing, secrets, now + 59 * DAY)
    assert again is not None and (again.certificate, again.issue_reason) == (first.certificate, "")
    assert make_stores(again, existing, "secret") == (keystore, truststore), (
        "stores with the same content are not made again"
    )
    renewed = maintain_client_certificate(user(), cluster(), existing, secrets, now + 60 * DAY)
    assert renewed is not None and "two thirds" in renewed.issue_reason and renewed.key != first.key
    assert make_stores(renewed, existing, "secret")[0] != keystore
    later = now + 4.5 * 365 * DAY
    successor = maintain_certificates(cluster(), made.authority, made.brokers, ["localhost"], now + 3.4 * 365 * DAY)
    moved = maintain_client_certificate(
        user(), cluster(), existing, {"demo-ca": ObservedSecret(successor.authority, "2")}, later
    )
    assert moved is not None
    issued = x509.read_certificate(moved.certificate, moved.key, read_authorities(cluster(), successor.authority))
    assert issued is not None and issued.issuer == 2
    assert moved.authorities.count("BEGIN CERTIFICATE") == 2


def test_rights_of_the_former_name_of_a_user_are_revoked() -> None:
    resource = UserResource.of_cluster(
        None, {**samples.user(authentication=TLS), "metadata": {"name": "alice", "uid": "u1"}}
    )
    records = {"u1": UserRecord("alice", "alice", "alice"), "u2": UserRecord("bob", "bob", "bob")}
    current = {"u1": UserRecord("alice", "CN=alice", "alice"), "u2": UserRecord("bob", "bob", "bob")}
    former = renamed_records(records, current)
    assert former == {"u1/alice": records["u1"]}
    assert plan_revocations({**current, **former}, [resource], [], {"alice": "u1", "bob": "u2"}) == former
