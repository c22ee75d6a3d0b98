"""The overview, topics, the cluster and access in a real browser, on a real broker."""

from playwright.sync_api import Page, expect

from tests.brokers import BrokerProcess
from tests.browser import take_picture, take_screenshot
from tests.clients import librdkafka as rd
from tests.clients.console_pages import PLOTS_ARE_DRAWN, RECORDS, run_consumer, url_of
from tests.ottla_command import run_ottla

TOPICS = {"payments.refunds": 3, "payments.new": 1, "shipments": 12, "stock.levels": 6, "stock.orders": 6}
"""Numbers of partitions of the topics besides `orders`."""


def test_overview_shows_health_brokers_disks_and_plots(tab: Page, console: BrokerProcess) -> None:
    expect(tab.get_by_role("status")).to_have_text(
        "All is well: one broker, every partition has a leader and all its replicas."
    )
    expect(tab.get_by_role("region", name="Brokers").locator("tbody tr")).to_have_count(1)
    expect(tab.get_by_role("region", name="Disks").get_by_role("meter")).to_have_count(1)
    with run_consumer(console, "plots", "overview", commit_count=1):
        expect(tab.locator(".plots canvas")).to_have_count(5)
        tab.wait_for_function(PLOTS_ARE_DRAWN, arg=0)
    take_screenshot(tab, "overview")
    tab.get_by_role("link", name="0 now, 0 since it started").click()
    expect(tab.get_by_role("heading", name="Throttled by broker 1 since it started")).to_be_visible()


def test_topics_are_found_while_their_name_is_typed(tab: Page, console: BrokerProcess) -> None:
    for name, partitions in TOPICS.items():
        rd.create_topic(console.bootstrap, name, partitions)
    tab.get_by_role("link", name="Topics").click()
    found = tab.get_by_role("region", name="Topics").locator("tbody td:first-child")
    expect(found).to_have_text(sorted(["orders", *TOPICS]))
    take_picture(tab, "topics")
    search = tab.get_by_role("searchbox", name="Search")
    search.press_sequentially("pay re")
    rows = tab.get_by_role("region", name="Topics").locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(tab).to_have_url(f"{url_of(console)}/topics?search=pay%20re")
    rows.get_by_role("link").click()
    expect(tab.get_by_role("heading", level=1)).to_have_text("payments.refunds")


def test_topic_shows_partitions_with_offsets_and_sizes_and_its_configs(tab: Page, console: BrokerProcess) -> None:
    tab.goto(f"{url_of(console)}/topics/orders")
    rows = tab.get_by_role("region", name="Partitions").locator("tbody tr")
    expect(rows).to_have_count(6)
    ends = [int(row.locator("td").nth(5).inner_text()) for row in rows.all()]
    assert sum(ends) == RECORDS
    assert all(row.locator("td").last.inner_text().endswith("KiB") for row in rows.all())
    figures = tab.locator("section", has=tab.get_by_role("heading", name="Growth")).locator(".figures")
    # The records were written just now, with timestamps of a little more than an hour ago.
    expect(figures).to_contain_text("Records a second now0 Records a second an hour ago1.0 Records in the last hour0")
    first = tab.get_by_role("region", name="Configs").locator("tbody tr").first
    expect(first.locator("td").nth(0)).to_have_text("retention.ms")
    expect(first.locator("td").nth(2)).to_have_text("this topic")
    take_picture(tab, "topic")


def test_pages_are_used_with_the_keyboard(tab: Page) -> None:
    tab.keyboard.press("Tab")
    expect(tab.get_by_role("link", name="Skip to the content")).to_be_focused()
    for _ in range(3):
        tab.keyboard.press("Tab")
    expect(tab.get_by_role("link", name="Topics", exact=True)).to_be_focused()
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("heading", level=1)).to_have_text("Topics")


def test_cluster_shows_its_quorum_its_log_and_the_departure_of_a_broker(tab: Page, console: BrokerProcess) -> None:
    tab.get_by_role("link", name="Cluster").click()
    replicas = tab.get_by_role("region", name="Replicas of the metadata log").locator("tbody tr")
    expect(replicas).to_have_count(1)
    expect(replicas).to_contain_text("leader")
    take_screenshot(tab, "cluster")
    tab.get_by_label("What would happen if broker").select_option("1")
    tab.get_by_role("button", name="Simulate").click()
    expect(tab.get_by_role("main").get_by_role("status")).to_contain_text("would be offline until the broker returns")
    expect(tab.get_by_role("region", name="Offline").locator("tbody tr").first).to_contain_text("none")
    take_screenshot(tab, "departure")
    tab.goto(f"{url_of(console)}/cluster")
    tab.get_by_role("link", name="Records of the metadata log").click()
    tab.get_by_label("From offset").fill("0")
    tab.get_by_role("button", name="Show").click()
    rows = tab.get_by_role("region", name="Records of the metadata log").locator("tbody tr")
    expect(rows.filter(has_text="register-broker").first).to_be_visible()
    take_screenshot(tab, "metadata")


def test_access_pages_are_reached_from_each_other(tab: Page, console: BrokerProcess) -> None:
    tab.get_by_role("link", name="Access").click()
    expect(tab.get_by_role("main")).to_contain_text("have no authorizer")
    tabs = tab.get_by_role("navigation", name="Pages of access")
    for name in ("Why may X do Y", "Users", "Quotas"):
        tabs.get_by_role("link", name=name).click()
        expect(tabs.locator("[aria-current]")).to_have_text(name)


def test_quotas_that_a_client_sets_are_listed(tab: Page, console: BrokerProcess) -> None:
    for arguments in (
        ("producer_byte_rate=1000", "consumer_byte_rate=2000", "--user", "eve"),
        ("request_percentage=50", "--user", "eve", "--client-id", "reports"),
        ("producer_byte_rate=10", "--user", "<default>"),
    ):
        run_ottla("quotas", "alter", *arguments, "--bootstrap", console.bootstrap).check_returncode()
    tab.goto(f"{url_of(console)}/access/quotas")
    expect(tab.get_by_role("region", name="Quotas").locator("tbody tr")).to_have_text(
        [
            "user (default)producer_byte_rate 10",
            "user eveconsumer_byte_rate 2000producer_byte_rate 1000",
            "user eve, client-id reportsrequest_percentage 50",
        ]
    )
    expect(tab.get_by_role("main")).to_contain_text(
        "No client. Each broker counts the clients that it throttles itself."
    )
    take_screenshot(tab, "quotas")
