"""The pages of mirrors in a real browser, on a broker that mirrors another."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.brokers import BrokerProcess, run_ottla_broker
from tests.browser import open_tab, take_picture, take_screenshot
from tests.clients import librdkafka as rd
from tests.clients.console_pages import WITHIN_MS, url_of
from tests.clients.sample_messages import START_MS, Message
from tests.e2e.mirroring import mirror_topics
from tests.ottla_command import run_ottla
from tests.ports import free_port

RECORDS = 30


@dataclass(frozen=True)
class Pair:
    source: BrokerProcess
    console: BrokerProcess


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """A source with the topics `orders` and `payments`, and a broker that mirrors it as `west`."""
    with (
        run_ottla_broker(num_partitions=1) as source,
        run_ottla_broker(http_listener=f"127.0.0.1:{free_port()}", console_enable="true") as target,
    ):
        for topic, partitions in (("orders", 3), ("payments", 1)):
            rd.create_topic(source.bootstrap, topic, partitions=partitions)
            rd.produce(source.bootstrap, topic, [Message(None, b"record", START_MS)] * RECORDS)
        mirror_topics(source, target, "west")
        yield Pair(source, target)


@pytest.fixture
def tab(pair: Pair, browser: Browser) -> Iterator[Page]:
    with open_tab(browser) as page:
        page.goto(url_of(pair.console))
        yield page


def test_mirror_page_follows_a_running_mirror_a_lost_source_and_a_failover(tab: Page, pair: Pair) -> None:
    tab.get_by_role("link", name="Mirrors").click()
    tab.get_by_role("link", name="west").click()
    rows = tab.get_by_role("region", name="Topics").locator("tbody tr")
    expect(rows).to_have_count(2, timeout=WITHIN_MS)
    checks = tab.get_by_role("list", name="Checklist")
    expect(checks).to_contain_text("ok Every record of the source that is known here is copied.", timeout=WITHIN_MS)
    expect(rows.filter(has_text="orders").locator("td").nth(3)).to_have_text("Replicating")
    expect(rows.filter(has_text="orders").locator("td").nth(4)).to_have_text("0")
    expect(checks).to_contain_text("ok The source responds.")
    expect(checks).to_contain_text("open Offsets of groups are not copied")
    expect(checks).to_contain_text("to check Producers of the source are stopped")
    take_screenshot(tab, "mirror-running")
    pair.source.kill()
    expect(checks).to_contain_text("open The source", timeout=WITHIN_MS)
    expect(tab.get_by_role("region", name="Partitions that need attention").locator("tbody tr")).to_have_count(4)
    take_picture(tab, "mirror")
    failover = ("mirror", "failover", "west", "--yes", "--bootstrap", pair.console.bootstrap)
    run_ottla(*failover).check_returncode()
    expect(checks.get_by_role("listitem")).to_have_text(
        ["ok Copying has ended.", "ok Producers may write to every partition."], timeout=WITHIN_MS
    )
    expect(rows.first.locator("td").nth(3)).to_have_text("FailedOver")
    take_screenshot(tab, "mirror-failed-over")
