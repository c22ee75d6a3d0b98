"""The console's login by a real OpenID Connect server, in a real browser.

The console is at `localhost` and the server at `127.0.0.1`: different sites, as in production.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from confluent_kafka.admin import AclOperation, AdminClient, ResourceType
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.brokers import BrokerProcess, run_ottla_broker
from tests.browser import WIDE, take_screenshot
from tests.clients import librdkafka as rd
from tests.clients.test_sasl import SaslBroker, acl, create_acls
from tests.oidc_server import CONSOLE, OidcServer, listener_settings, new_key, run_oidc_server
from tests.ports import free_port

pytest.importorskip("jwt", reason="PyJWT, a dependency of the broker, is not installed")


@dataclass(frozen=True)
class OidcConsole:
    url: str
    broker: BrokerProcess
    oidc: OidcServer


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OidcConsole]:
    """A cluster with the topics `orders`, which alice may describe, and `payments`, which she may
    not.
    """
    folder, http, login = tmp_path_factory.mktemp("oidc"), free_port(), free_port()
    url = f"http://localhost:{http}"
    (folder / "secret").write_text(CONSOLE[1])
    with (
        run_oidc_server(folder, [new_key("first")], f"{url}/login/oidc") as oidc,
        run_ottla_broker(start=False) as broker,
    ):
        broker.settings |= {
            **listener_settings(broker.bootstrap, f"127.0.0.1:{login}", oidc),
            "http.listener": f"127.0.0.1:{http}",
            "console.enable": "true",
            "console.oidc.issuer": oidc.url,
            "console.oidc.client.id": CONSOLE[0],
            "console.oidc.client.secret": f"${{directory:{folder}:secret}}",
        }
        broker.start()
        cluster = SaslBroker(broker, broker.bootstrap, AdminClient({"bootstrap.servers": broker.bootstrap}))
        for topic in ("orders", "payments"):
            rd.create_topic(broker.bootstrap, topic)
        create_acls(cluster, acl(ResourceType.TOPIC, "orders", AclOperation.DESCRIBE))
        yield OidcConsole(url, broker, oidc)


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport={"width": WIDE[0], "height": WIDE[1]})
    yield made
    made.close()


def log_in(tab: Page, secured: OidcConsole, name: str) -> None:
    tab.goto(f"{secured.url}/topics")
    tab.get_by_role("link", name="Log in with").click()
    tab.locator("input[name=login]").fill(name)
    tab.locator("input[name=password]").fill("any")
    tab.locator("button[type=submit]").click()


def start_login(secured: OidcConsole) -> tuple[dict[str, str], str]:
    """Starts a login; returns its cookies and its `state`."""
    answer = requests.get(f"{secured.url}/login/oidc/start", allow_redirects=False, timeout=30)
    found = re.search(r"[?&]state=([^&]+)", answer.headers["Location"])
    assert found is not None
    return {it.name: it.value or "" for it in answer.cookies}, found.group(1)


def failed_logins(secured: OidcConsole) -> list[str]:
    lines = secured.broker.log_tail().splitlines()
    return [it for it in lines if '"operation":"LOGIN"' in it and "SASL_AUTHENTICATION_FAILED" in it]


def test_user_logs_in_sees_the_topics_that_acls_allow_and_logs_out(
    context: BrowserContext, secured: OidcConsole
) -> None:
    tab = context.new_page()
    tab.goto(secured.url)
    expect(tab.get_by_role("heading", level=1)).to_have_text("Log in")
    take_screenshot(tab, "login-oidc")
    log_in(tab, secured, "alice")
    expect(tab.locator("header")).to_contain_text("User:alice")
    expect(tab).to_have_url(f"{secured.url}/")
    cookies = {it["name"]: it for it in context.cookies(secured.url)}
    assert {name: (it["httpOnly"], it["sameSite"]) for name, it in cookies.items()} == {
        "ottla-console-1": (True, "Strict")
    }
    tab.get_by_role("navigation").get_by_role("link", name="Topics").click()
    names = tab.get_by_role("region", name="Topics").locator("tbody td:first-child")
    assert names.all_inner_texts() == ["orders"]
    tab.get_by_role("button", name="Log out").click()
    expect(tab.get_by_role("heading", level=1)).to_have_text("Log in")
    assert "console-secret" not in secured.broker.log_tail()


def test_request_to_the_provider_is_bound_to_the_browser(secured: OidcConsole) -> None:
    answer = requests.get(f"{secured.url}/login/oidc/start", allow_redirects=False, timeout=30)
    query = {name: one for name, (one,) in parse_qs(urlsplit(answer.headers["Location"]).query).items()}
    assert (query["code_challenge_method"], query["response_type"]) == ("S256", "code")
    assert len({query["state"], query["nonce"], query["code_challenge"]}) == 3
    cookie = answer.headers["Set-Cookie"]
    assert all(it in cookie for it in ("HttpOnly", "SameSite=Lax", "Max-Age=600", "Path=/login/oidc"))
    assert query["state"] not in cookie and query["nonce"] not in cookie


@pytest.mark.parametrize(
    ("query", "with_cookie", "message"),
    [
        ("code=x&state=guessed", True, "was not started in this browser"),
        ("code=x&state=STATE", False, "was not started in this browser"),
        ("code=x", True, "was not started in this browser"),
        ("code=x&state=STATE&iss=http://other", True, "was not started in this browser"),
        (
            "error=access_denied&error_description=<b>no&state=STATE",
            True,
            "refuses the login: access_denied (&lt;b&gt;no)",
        ),
        ("code=guessed&state=STATE", True, "refuses the login: invalid_grant"),
    ],
)
def test_forged_and_failed_login_callbacks_are_refused_with_a_reason_and_audited(
    secured: OidcConsole, query: str, with_cookie: bool, message: str
) -> None:
    cookies, state = start_login(secured)
    count_before = len(failed_logins(secured))
    answer = requests.get(
        f"{secured.url}/login/oidc?{query.replace('STATE', state)}", cookies=cookies if with_cookie else {}, timeout=30
    )
    assert (answer.status_code, message in answer.text) == (401, True), answer.text
    assert "ottla-console-1" not in answer.cookies
    assert len(failed_logins(secured)) == count_before + 1


def test_provider_that_does_not_respond_is_named(secured: OidcConsole) -> None:
    """The provider stops in the middle of a login, before the user comes back to the console."""
    cookies, state = start_login(secured)
    count_before = len(failed_logins(secured))
    secured.oidc.daemon.stop()
    try:
        answer = requests.get(f"{secured.url}/login/oidc?code=x&state={state}", cookies=cookies, timeout=30)
    finally:
        secured.oidc.start()
    assert (answer.status_code, len(failed_logins(secured))) == (502, count_before + 1)
    assert f"does not respond as expected: {secured.oidc.token_url}: connection refused" in answer.text
    assert "Traceback" not in secured.broker.log_tail()
