"""TLS between brokers, and its roll-out while they run."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.wire.client_security import UNSECURED
from ottla_operator.plan import listener_certificates
from ottla_operator.plan.inter_broker_login import InterBrokerLogin, observed_login
from ottla_operator.plan.inter_broker_tls import InterBrokerTls, keep_certificates, plan_tls, secure_operator
from ottla_operator.plan.objects.config import common_settings
from ottla_operator.plan.source_credentials import ObservedSecret, SecretUnusable
from ottla_operator.resources.cluster import Cluster
from tests.kube.certificates import CertificateAuthority, create_certificate_authority, create_server_certificate
from tests.unit.operator import samples

NONE, OPTIONAL, REQUIRED = InterBrokerTls
HOST = "demo-1.demo-brokers.events.svc"


def cluster(**tls: Any) -> Cluster:
    listeners = [{"name": "safe", "port": 9094, "authentication": "SCRAM"}]
    return Cluster.parse(samples.cluster(listeners=listeners, tls=tls))


SECURED = cluster(issuer="Internal", interBroker=True)
OPEN = cluster(issuer="Internal")


@given(
    running=st.lists(st.sampled_from([*InterBrokerTls]), min_size=1, max_size=5).filter(
        lambda stages: not {NONE, REQUIRED} <= {*stages}
    ),
    wanted=st.sampled_from([SECURED, OPEN]),
    data=st.data(),
)
def test_brokers_reach_each_other_at_every_step_of_a_roll(
    running: list[InterBrokerTls], wanted: Cluster, data: st.DataObject
) -> None:
    for _ in range(2 * len(running)):
        planned = plan_tls(wanted, running)
        outdated = [at for at, it in enumerate(running) if it is not planned]
        if not outdated:
            break
        running[data.draw(st.sampled_from(outdated))] = planned
        assert not {NONE, REQUIRED} <= {*running}
    assert {*running} == {plan_tls(wanted, [])}


@pytest.mark.parametrize("login", InterBrokerLogin)
def test_the_inter_broker_listener_has_tls_beside_its_login(login: InterBrokerLogin) -> None:
    protocols = {
        stage: common_settings(SECURED, 3, login, stage)["listener.security.protocol.map"].split(",")[0]
        for stage in InterBrokerTls
    }
    prefix = "SASL_" if login else ""
    tls = f"INTER_BROKER:{prefix}SSL"
    assert protocols == {NONE: f"INTER_BROKER:{prefix}PLAINTEXT", OPTIONAL: tls, REQUIRED: tls}
    for stage in InterBrokerTls:
        settings = common_settings(SECURED, 3, login, stage)
        assert observed_login(settings) is login
        assert settings.get("ssl.inter.broker.optional") == ("true" if stage is OPTIONAL else None)
        assert "ssl.truststore.certificates" in settings


def test_brokers_keep_their_certificates_while_they_lose_tls() -> None:
    for stage in (OPTIONAL, REQUIRED):
        kept = keep_certificates(OPEN, stage)
        assert "ca.crt" in listener_certificates.required_keys(kept)
        assert listener_certificates.secret_name(kept) == "demo-certificates"
    assert keep_certificates(OPEN, NONE) is OPEN and not listener_certificates.secret_name(OPEN)


def test_the_operator_goes_without_tls_only_where_a_broker_has_none() -> None:
    assert secure_operator(UNSECURED, [NONE], "", HOST) == UNSECURED
    for running, is_optional in (([NONE, OPTIONAL], True), ([OPTIONAL], False), ([OPTIONAL, REQUIRED], False)):
        security = secure_operator(UNSECURED, running, "authorities", HOST)
        assert (security.protocol, security.is_tls_optional, security.server_name) == ("SSL", is_optional, HOST)
        assert security.verifies_hostname and security.trusted_certificates == "authorities"


def check_certificate(authority: CertificateAuthority, names: list[str], authorities: str | None = None) -> None:
    chain, key = create_server_certificate(authority, "broker", names)
    trusted = authority.certificate.read_text() if authorities is None else authorities
    values = {"tls.crt": chain.read_text(), "tls.key": key.read_text(), "ca.crt": trusted}
    wanted = cluster(secretRef={"name": "demo-tls"}, interBroker=True)
    found = listener_certificates.read_certificates(wanted, {"demo-tls": ObservedSecret(values, "1")})
    assert found is not None
    listener_certificates.check_certificates_between_brokers(found, HOST)


def test_a_certificate_that_brokers_would_reject_is_refused_before_a_restart(authority: CertificateAuthority) -> None:
    check_certificate(authority, ["DNS:*.demo-brokers.events.svc", "DNS:x"])
    with pytest.raises(SecretUnusable, match=r"tls.crt has no name \*.demo-brokers.events.svc; it has: localhost$"):
        check_certificate(authority, ["DNS:localhost"])
    other = create_certificate_authority(authority.folder / "other", ["127.0.0.1"], ["localhost"])
    with pytest.raises(SecretUnusable, match=r"interBroker: Secret demo-tls: .* ca.crt does not verify tls.crt"):
        check_certificate(authority, ["DNS:*.demo-brokers.events.svc"], other.certificate.read_text())
