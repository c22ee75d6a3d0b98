"""The console on a cluster with logins and access rules, in a real browser."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import confluent_kafka as ck
import pytest
import requests
from confluent_kafka.admin import AclOperation, AdminClient, ResourceType, UserScramCredentialDeletion
from playwright.sync_api import Browser, Page, expect

from tests.brokers import run_ottla_broker
from tests.browser import open_tab, take_picture, take_screenshot
from tests.clients import librdkafka as rd
from tests.clients.test_sasl import SCRAM, SaslBroker, acl, create_acls, login_settings, set_password
from tests.ports import free_port
from tests.waiting import eventually

WITHIN_MS = 60_000
PASSWORD = "secret ä & <b>"
LARGE = 40_000
"""Number of records of 1 kB in the topic `large`: more than the buffers between the broker and a
client hold."""


@dataclass(frozen=True)
class SecuredConsole:
    url: str
    cluster: SaslBroker


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredConsole]:
    """A cluster with four topics. alice may read `orders` and `large`, describe `described`, and do
    nothing with `payments`. carol may read `orders`. bob is a super user.
    """
    http, login = free_port(), free_port()
    with run_ottla_broker(start=False) as broker:
        broker.settings |= {
            **login_settings(broker.port, login),
            "super.users": "User:ANONYMOUS;User:bob",
            "http.listener": f"127.0.0.1:{http}",
            "console.enable": "true",
        }
        broker.start()
        cluster = SaslBroker(broker, f"127.0.0.1:{login}", AdminClient({"bootstrap.servers": broker.bootstrap}))
        for user in ("alice", "carol"):
            set_password(cluster, user, PASSWORD, SCRAM["SCRAM-SHA-512"])
        producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
        for topic in ("orders", "payments", "described"):
            rd.create_topic(broker.bootstrap, topic)
            producer.produce(topic, b"a record of %s" % topic.encode())
        rd.create_topic(broker.bootstrap, "large")
        for _ in range(LARGE):
            producer.produce("large", bytes(1000))
        assert producer.flush(60) == 0
        create_acls(cluster, acl(ResourceType.TOPIC, "large", AclOperation.READ, user="alice"))
        for user in ("alice", "carol"):
            create_acls(cluster, acl(ResourceType.TOPIC, "orders", AclOperation.READ, user=user))
        create_acls(cluster, acl(ResourceType.TOPIC, "described", AclOperation.DESCRIBE))
        yield SecuredConsole(f"http://127.0.0.1:{http}", cluster)


@pytest.fixture
def tab(browser: Browser) -> Iterator[Page]:
    with open_tab(browser) as page:
        yield page


def log_in(tab: Page, secured: SecuredConsole, name: str, password: str) -> None:
    tab.goto(f"{secured.url}/login")
    tab.get_by_label("Name").fill(name)
    tab.get_by_label("Password").fill(password)
    tab.get_by_role("button", name="Log in").click()


def session_cookies(tab: Page) -> dict[str, str]:
    """The cookie of the session, for requests outside the browser."""
    (cookie,) = tab.context.cookies()
    return {cookie["name"]: cookie["value"]}


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/topics", "/topics/orders", "/groups", "/group?id=g", "/group/reset?id=g", "/throughput", "/log-dirs"),
        *("/schemas", "/access", "/access/users", "/cluster", "/cluster/metadata"),
    ],
)
def test_nothing_is_shown_before_the_login(secured: SecuredConsole, path: str) -> None:
    answer = requests.get(secured.url + path, allow_redirects=False, timeout=30)
    assert (answer.status_code, answer.headers["Location"], answer.text) == (303, "/login", "")
    part = requests.get(secured.url + path, headers={"HX-Request": "true"}, allow_redirects=False, timeout=30)
    assert (part.status_code, part.headers["HX-Redirect"], part.text) == (401, "/login", "")
    forged = requests.get(secured.url + path, cookies={"ottla-console-1": "x" * 43}, allow_redirects=False, timeout=30)
    assert forged.status_code == 303


def test_user_sees_what_access_rules_allow(tab: Page, secured: SecuredConsole) -> None:
    log_in(tab, secured, "alice", PASSWORD)
    expect(tab.locator("header")).to_contain_text("User:alice")
    expect(tab.locator("main")).to_contain_text("User:alice is not allowed DESCRIBE on the cluster")
    tab.get_by_role("navigation").get_by_role("link", name="Topics").click()
    names = tab.get_by_role("region", name="Topics").locator("tbody td:first-child")
    assert names.all_inner_texts() == ["described", "large", "orders"]
    names.get_by_text("orders").click()
    tab.get_by_role("link", name="Messages").click()
    expect(tab.locator("#records")).to_contain_text("a record of orders")
    answers = {path: tab.request.get(secured.url + path).status for path in (
        "/topics/payments", "/topics/payments/messages", "/topics/described/messages",
        "/topics/described/messages/stream?mode=search", "/topics/described/messages/export", "/log-dirs",
    )}  # fmt: skip
    assert answers == {
        "/topics/payments": 404,
        "/topics/payments/messages": 404,
        "/topics/described/messages": 403,
        "/topics/described/messages/stream?mode=search": 403,
        "/topics/described/messages/export": 403,
        "/log-dirs": 403,
    }
    denied = [line for line in secured.cluster.broker.log_tail().splitlines() if '"name":"described"' in line]
    assert any('"principal":"User:alice"' in line and '"request":"Fetch"' in line for line in denied)


def test_rules_that_decide_are_explained_to_those_who_may_see_them(tab: Page, secured: SecuredConsole) -> None:
    log_in(tab, secured, "alice", PASSWORD)
    expect(tab.locator("header")).to_contain_text("User:alice")
    answers = {path: tab.request.get(secured.url + path).status for path in ("/access", "/access/why", "/cluster")}
    assert set(answers.values()) == {403}
    tab.get_by_role("button", name="Log out").click()
    log_in(tab, secured, "bob", "bobs")
    tab.get_by_role("link", name="Access").click()
    rows = tab.get_by_role("region", name="Rules").locator("tbody tr")
    expect(rows.first).to_contain_text("User:alice")
    take_picture(tab, "rules")
    tab.get_by_role("link", name="Why may X do Y").click()
    decides = tab.get_by_role("region", name="Rules of the resource").locator("tbody tr[aria-current=true]")
    for topic, reason in (("orders", "Allowed. A rule allows it."), ("payments", "Refused. No rule is about")):
        tab.get_by_label("May").fill("alice")
        tab.get_by_label("named").fill(topic)
        tab.get_by_role("button", name="Explain").click()
        expect(tab.get_by_role("main").get_by_role("status")).to_contain_text(reason)
    tab.get_by_label("named").fill("orders")
    tab.get_by_role("button", name="Explain").click()
    expect(tab.get_by_role("main").get_by_role("status")).to_contain_text("Allowed.")
    assert decides.locator("td").all_inner_texts() == ["User:alice", "*", "ALLOW", "READ", "TOPIC", "orders", "LITERAL"]
    take_picture(tab, "access")
    tab.get_by_role("link", name="Users").click()
    expect(tab.get_by_role("region", name="Users")).to_contain_text("SCRAM-SHA-512")


def test_access_rules_decide_who_writes(tab: Page, secured: SecuredConsole) -> None:
    log_in(tab, secured, "alice", PASSWORD)
    expect(tab.locator("header")).to_contain_text("User:alice")
    tab.goto(f"{secured.url}/topics/orders/produce")
    tab.get_by_label("Value", exact=True).fill("by alice")
    token = tab.locator("main input[name=token]").input_value()
    cookies = session_cookies(tab)
    for path, form, request in (
        ("/topics/orders/produce", {"value": "by alice"}, "Produce"),
        ("/topics/orders/messages/0/0/copy", {"topic": "described"}, "Produce"),
        ("/topics/orders/configs/retention.ms", {"value": "1"}, "DescribeConfigs"),
        ("/topics/orders/delete", {"name": "orders", "id": topic_id(secured, "orders")}, "DeleteTopics"),
        ("/topic/create", {"name": "new"}, "CreateTopics"),
    ):
        fields = {"token": token, **form}
        answer = requests.post(
            secured.url + path, data=fields, cookies=cookies, headers={"Origin": secured.url}, timeout=30
        )
        assert answer.status_code == 403, (path, answer.text)
        denied = [line for line in secured.cluster.broker.log_tail().splitlines() if f'"request":"{request}"' in line]
        assert any('"principal":"User:alice"' in it and '"result":"denied"' in it for it in denied), path
    tab.get_by_role("button", name="Log out").click()
    log_in(tab, secured, "bob", "bobs")
    expect(tab.locator("header")).to_contain_text("User:bob")
    tab.goto(f"{secured.url}/topics/orders/produce")
    tab.get_by_label("Value", exact=True).fill("by bob")
    tab.get_by_role("button", name="Produce").click()
    expect(tab.get_by_role("heading", level=1)).to_have_text("orders partition 0, offset 1")
    done = [line for line in secured.cluster.broker.log_tail().splitlines() if '"principal":"User:bob"' in line]
    assert any('"request":"Produce"' in it and '"result":"done"' in it for it in done)


def topic_id(secured: SecuredConsole, topic: str) -> str:
    (found,) = secured.cluster.admin.describe_topics(ck.TopicCollection([topic])).values()
    id_ = found.result(30).topic_id
    high, low = (one % (1 << 64) for one in (id_.get_most_significant_bits(), id_.get_least_significant_bits()))
    return str(uuid.UUID(int=high << 64 | low))


def test_wrong_passwords_and_unknown_users_get_the_same_answer(browser: Browser, secured: SecuredConsole) -> None:
    headers = {"Origin": secured.url}
    answers = [
        requests.post(f"{secured.url}/login", data={"name": name, "password": password}, headers=headers, timeout=30)
        for name, password in (("alice", "wrong"), ("eve", PASSWORD), ("bob", PASSWORD), ("", ""), ("x" * 2000, "x"))
    ]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.text for answer in answers}) == 1
    assert "The name or the password is wrong." in answers[0].text
    assert not any(answer.cookies for answer in answers)
    lines = [line for line in secured.cluster.broker.log_tail().splitlines() if '"operation":"LOGIN"' in line]
    assert any('"name":"eve"' in line and '"listener":"http.listener"' in line for line in lines)


def test_super_user_sees_the_overview_and_logs_out(tab: Page, secured: SecuredConsole) -> None:
    log_in(tab, secured, "bob", "bobs")
    expect(tab.get_by_role("status")).to_contain_text("All is well")
    (cookie,) = tab.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
    tab.get_by_role("button", name="Log out").click()
    expect(tab.get_by_role("heading", level=1)).to_have_text("Log in")
    take_screenshot(tab, "login")
    assert tab.context.cookies() == []
    tab.context.add_cookies([{"name": cookie["name"], "value": cookie["value"], "url": secured.url}])
    tab.goto(f"{secured.url}/topics")
    expect(tab.get_by_role("heading", level=1)).to_have_text("Log in")


def test_forms_of_other_sites_change_nothing(tab: Page, secured: SecuredConsole) -> None:
    log_in(tab, secured, "alice", PASSWORD)
    expect(tab.locator("header")).to_contain_text("User:alice")
    cookies = session_cookies(tab)
    for headers, token in (
        ({"Origin": "http://attacker.example"}, ""),
        ({"Origin": "null"}, ""),
        ({}, ""),
        ({"Origin": secured.url}, "guessed"),
        ({"Origin": secured.url, "Sec-Fetch-Site": "cross-site"}, ""),
    ):
        answer = requests.post(
            f"{secured.url}/logout", data={"token": token}, headers=headers, cookies=cookies, timeout=30
        )
        assert answer.status_code == 403, headers
    login = {"name": "bob", "password": "bobs"}
    foreign = requests.post(
        f"{secured.url}/login", data=login, headers={"Origin": "http://attacker.example"}, timeout=30
    )
    assert foreign.status_code == 403 and not foreign.cookies
    tab.reload()
    expect(tab.locator("header")).to_contain_text("User:alice")


@pytest.mark.parametrize(
    ("body", "status"), [(b"name=\xff\xfe&password=x", 400), (b"name=%ED%A0%80&password=%00", 401), (b"", 401)]
)
def test_malformed_form_is_refused_without_a_traceback(secured: SecuredConsole, body: bytes, status: int) -> None:
    headers = {"Origin": secured.url, "Content-Type": "application/x-www-form-urlencoded"}
    answer = requests.post(f"{secured.url}/login", data=body, headers=headers, timeout=30)
    assert answer.status_code == status and "Traceback" not in answer.text
    assert "Traceback" not in secured.cluster.broker.log_tail()


def test_session_ends_with_its_user(tab: Page, secured: SecuredConsole) -> None:
    log_in(tab, secured, "carol", PASSWORD)
    expect(tab.locator("header")).to_contain_text("User:carol")
    following = tab.context.new_page()
    following.goto(f"{secured.url}/topics/orders/messages?mode=follow")
    expect(following.locator("#records")).to_contain_text("a record of orders", timeout=WITHIN_MS)
    removal = UserScramCredentialDeletion("carol", SCRAM["SCRAM-SHA-512"])
    for done in secured.cluster.admin.alter_user_scram_credentials([removal]).values():
        done.result(30)

    def is_logged_out() -> bool:
        tab.goto(f"{secured.url}/topics")
        return tab.get_by_role("heading", level=1).inner_text() == "Log in"

    eventually(is_logged_out)
    expect(following.locator(".problem.warning")).to_contain_text("the session has ended", timeout=WITHIN_MS)


def test_export_breaks_off_when_its_user_logs_out(tab: Page, secured: SecuredConsole) -> None:
    log_in(tab, secured, "alice", PASSWORD)
    expect(tab.locator("header")).to_contain_text("User:alice")
    cookies = session_cookies(tab)
    url = f"{secured.url}/topics/large/messages/export?format=jsonl"
    with requests.get(url, cookies=cookies, stream=True, timeout=60) as answer:
        assert answer.status_code == 200
        parts = answer.iter_content(1 << 16)
        assert next(parts).startswith(b"{")
        tab.get_by_role("button", name="Log out").click()
        expect(tab.get_by_role("heading", level=1)).to_have_text("Log in")
        with pytest.raises(requests.exceptions.ChunkedEncodingError):
            for _ in parts:
                pass
