"""The console's login with a client's certificate, which a real browser or `requests` presents."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka as ck
import pytest
import requests
from confluent_kafka.admin import AclOperation, AdminClient, ResourceType
from playwright.sync_api import Browser, expect

from tests.brokers import BrokerProcess, run_ottla_broker
from tests.browser import take_screenshot
from tests.clients import librdkafka as rd
from tests.clients.test_sasl import SaslBroker, acl, create_acls
from tests.kube.certificates import CertificateAuthority, create_certificate_authority, create_client_certificate
from tests.ports import free_port


@dataclass(frozen=True)
class CertificateConsole:
    """`bootstrap`: address of the listener that requires a client's certificate."""

    url: str
    broker: BrokerProcess
    authority: CertificateAuthority
    bootstrap: str


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CertificateConsole]:
    """A cluster with the topic `orders`, which CN=alice may describe as User:ALICE, and `payments`,
    which she may not. CN=bob is the super user User:BOB. No rule maps the subjects of other
    certificates.
    """
    authority = create_certificate_authority(tmp_path_factory.mktemp("tls") / "authority", ["127.0.0.1"], ["localhost"])
    http, port = free_port(), free_port()
    with run_ottla_broker(start=False) as broker:
        broker.settings |= {
            "listeners": f"PLAINTEXT://{broker.bootstrap},MUTUAL://127.0.0.1:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,MUTUAL:SSL",
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.location": str(authority.write_keystore()),
            "ssl.truststore.location": str(authority.certificate),
            "ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:.*CN=(alice|bob).*/$1/U",
            "authorizer.class.name": "StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:BOB",
            "http.listener": f"127.0.0.1:{http}",
            "http.security.listener": "MUTUAL",
            "console.enable": "true",
        }
        broker.start()
        cluster = SaslBroker(broker, broker.bootstrap, AdminClient({"bootstrap.servers": broker.bootstrap}))
        for topic in ("orders", "payments"):
            rd.create_topic(broker.bootstrap, topic)
        create_acls(cluster, acl(ResourceType.TOPIC, "orders", AclOperation.DESCRIBE, user="ALICE"))
        yield CertificateConsole(f"https://localhost:{http}", broker, authority, f"127.0.0.1:{port}")


def create_certificate_files(authority: CertificateAuthority, name: str) -> tuple[str, str]:
    """Returns the paths of the certificate and of its key."""
    certificate, key = create_client_certificate(authority, name)
    return str(certificate), str(key)


def topics_of_kafka_client(secured: CertificateConsole, certificate: Path, key: Path) -> set[str]:
    settings = {
        "bootstrap.servers": secured.bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(secured.authority.certificate),
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(key),
    }
    return set(ck.Consumer({**settings, "group.id": "unused"}).list_topics(timeout=30).topics)


def test_user_is_the_principal_of_the_certificate_and_the_session_is_bound_to_it(
    browser: Browser, secured: CertificateConsole
) -> None:
    certificate, key = create_client_certificate(secured.authority, "alice")
    presented = {"origin": secured.url, "certPath": str(certificate), "keyPath": str(key)}
    context = browser.new_context(ignore_https_errors=True, client_certificates=[presented])  # type: ignore[list-item]
    try:
        tab = context.new_page()
        tab.goto(secured.url)
        take_screenshot(tab, "login-certificate")
        tab.get_by_role("button", name="Log in as User:ALICE").click()
        expect(tab.locator("header")).to_contain_text("User:ALICE")
        (cookie,) = context.cookies()
        assert (cookie["secure"], cookie["httpOnly"], cookie["sameSite"]) == (True, True, "Strict")
        tab.goto(f"{secured.url}/topics")
        names = tab.get_by_role("region", name="Topics").locator("tbody td:first-child").all_inner_texts()
        assert set(names) == topics_of_kafka_client(secured, certificate, key) == {"orders"}
        cookies = {cookie["name"]: cookie["value"]}
        for other_certificate in (None, create_certificate_files(secured.authority, "bob")):
            answer = requests.get(
                f"{secured.url}/topics", cookies=cookies, cert=other_certificate,
                verify=str(secured.authority.certificate), allow_redirects=False, timeout=30,
            )  # fmt: skip
            assert (answer.status_code, answer.headers["Location"]) == (303, "/login")
        tab.get_by_role("button", name="Log out").click()
        expect(tab.get_by_role("button", name="Log in as User:ALICE")).to_be_visible()
    finally:
        context.close()


def test_client_without_a_users_certificate_is_not_logged_in(secured: CertificateConsole) -> None:
    """/livez and the login page need no certificate."""
    trusted, form = str(secured.authority.certificate), f"{secured.url}/login/certificate"
    carol = create_certificate_files(secured.authority, "carol")

    def log_in(certificate: tuple[str, str] | None, origin: str) -> requests.Response:
        return requests.post(form, headers={"Origin": origin}, cert=certificate, verify=trusted, timeout=30)

    assert requests.get(f"{secured.url}/livez", verify=trusted, timeout=30).text == "ok\n"
    assert "presented no certificate" in requests.get(f"{secured.url}/login", verify=trusted, timeout=30).text
    for certificate, origin, status, message in (
        (None, secured.url, 401, "presents no certificate"),
        (carol, secured.url, 401, "no rule of ssl.principal.mapping.rules="),
        (carol, "https://attacker.example", 403, "sent by another site"),
    ):
        answer = log_in(certificate, origin)
        assert (answer.status_code, message in answer.text, dict(answer.cookies)) == (status, True, {})
    lines = [line for line in secured.broker.log_tail().splitlines() if '"operation":"LOGIN"' in line]
    assert any("carol" in line and '"listener":"http.listener"' in line for line in lines)


def test_certificate_of_another_authority_is_refused(secured: CertificateConsole, tmp_path: Path) -> None:
    other = create_certificate_authority(tmp_path / "other", ["127.0.0.1"], ["localhost"])
    mallory = create_certificate_files(other, "alice")
    with pytest.raises(requests.exceptions.ConnectionError):
        requests.get(f"{secured.url}/login", cert=mallory, verify=str(secured.authority.certificate), timeout=30)
