"""Restarts of brokers on the overview, in a real browser, on a cluster of three."""

import asyncio
from collections.abc import Iterator
from threading import Thread

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from playwright.sync_api import Browser, Page, expect

from ottla_broker.wire.roll_report import RollBlocker, RollReport
from ottla_operator.kafka.client import connect
from ottla_operator.kafka.reports import report_roll
from tests.browser import PHONE, WIDE, open_tab, take_picture, take_screenshot
from tests.clients import librdkafka as rd
from tests.clients.console_pages import WITHIN_MS, run_on_thread
from tests.clusters import ProcessCluster, run_cluster
from tests.ports import free_port

TOPIC, WITHOUT_COPIES = "replicated", "without-copies"
MEBIBYTES = 24
THROTTLE = str(2 << 20)
"""Replicated bytes per second: the replicas of a broker are in sync after 12 seconds."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProcessCluster]:
    with run_cluster("ottla", 3, start=False, console_enable="true") as running:
        for broker in running.brokers.values():
            broker.settings["http.listener"] = f"127.0.0.1:{free_port()}"
        running.start()
        create_topics(running)
        throttle(running, THROTTLE)
        yield running


@pytest.fixture
def tab(cluster: ProcessCluster, browser: Browser) -> Iterator[Page]:
    with open_tab(browser) as page:
        page.goto(f"http://{cluster.brokers[1].settings['http.listener']}")
        expect(page.get_by_role("main").get_by_role("status")).to_contain_text("All is well", timeout=WITHIN_MS)
        yield page


def create_topics(cluster: ProcessCluster) -> None:
    """TOPIC has three partitions with a replica on every broker; brokers 1, 2 and 3 have one
    partition each of WITHOUT_COPIES.
    """
    admin = rd.admin_client(cluster.bootstrap)
    topics = [NewTopic(TOPIC, 3, 3), NewTopic(WITHOUT_COPIES, 3, replica_assignment=[[1], [2], [3]])]
    for created in admin.create_topics(topics).values():
        created.result(30)


def throttle(cluster: ProcessCluster, bytes_per_second: str | None) -> None:
    """Limits the rate at which each broker replicates TOPIC. None removes the limit."""
    alter(cluster, ResourceType.TOPIC, TOPIC, "follower.replication.throttled.replicas", "*")
    for broker in map(str, cluster.brokers):
        alter(cluster, ResourceType.BROKER, broker, "follower.replication.throttled.rate", bytes_per_second)


def alter(cluster: ProcessCluster, kind: ResourceType, name: str, key: str, value: str | None) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entries = [ConfigEntry(key, value or "", incremental_operation=operation)]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin = rd.admin_client(cluster.bootstrap)
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(30)


def report(cluster: ProcessCluster, roll: RollReport | None) -> None:
    async def send() -> None:
        async with connect(cluster.bootstrap, 30.0) as client:
            await report_roll(client, roll)

    run_on_thread(lambda: asyncio.run(send()))


def test_a_restart_is_followed_until_its_replicas_are_in_sync(tab: Page, cluster: ProcessCluster) -> None:
    rows = tab.get_by_role("region", name="Restarts").locator("tbody tr")
    expect(tab.locator("[hx-get='/restarts']")).to_have_text("")
    assert cluster.brokers[3].stop() == 0
    expect(rows).to_have_count(1, timeout=WITHIN_MS)
    expect(rows).to_contain_text("its process to start again", timeout=WITHIN_MS)
    expect(rows.locator("td").nth(1)).to_have_text("stopped")
    expect(tab.get_by_role("region", name="Brokers").locator("tbody tr").nth(2)).to_contain_text(
        "stopped", timeout=WITHIN_MS
    )
    elections = tab.get_by_role("region", name="Elections").locator("tbody tr")
    expect(elections).to_have_count(1, timeout=WITHIN_MS)
    expect(elections).to_contain_text(f"{WITHOUT_COPIES}2broker 3 to return, which has every acknowledged record")
    producer = ck.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(MEBIBYTES * 16):
        producer.produce(TOPIC, bytes(65_536), partition=number % 3)
        producer.poll(0)
    assert producer.flush(60) == 0
    starting = Thread(target=cluster.brokers[3].start)
    starting.start()
    expect(rows).to_contain_text("partitions to catch up, ", timeout=WITHIN_MS)
    expect(rows).to_contain_text("MiB behind")
    expect(rows.locator("td").nth(1)).to_have_text("restarted")
    take_screenshot(tab, "restart")
    starting.join()
    throttle(cluster, None)
    expect(rows).to_contain_text("nothing: all its replicas are in sync", timeout=WITHIN_MS)


def test_a_roll_of_the_operator_is_shown_with_what_it_waits_for(
    tab: Page, browser: Browser, cluster: ProcessCluster
) -> None:
    blocker = RollBlocker(1, TOPIC, 2, (1, 2), 2)
    report(cluster, RollReport((1, 2), "settings num.partitions", (3,), (blocker,)))
    roll = tab.get_by_role("region", name="Rolling restart")
    expect(roll).to_contain_text("Brokers 1, 2 still to be restarted: settings num.partitions.", timeout=WITHIN_MS)
    expect(roll).to_contain_text("The next step waits for broker 3 to serve again.")
    expect(roll).to_contain_text(f"Broker 1 waits for {TOPIC}-2, which needs 2 other replicas in sync; in sync: 1, 2.")
    for size, dark in ((WIDE, False), (PHONE, True)):
        with open_tab(browser, size, dark=dark) as page:
            page.goto(tab.url)
            expect(page.get_by_role("region", name="Rolling restart")).to_be_visible(timeout=WITHIN_MS)
            assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
            take_picture(page, "roll" if size == WIDE else "roll-phone")
    report(cluster, None)
    expect(roll).to_have_count(0, timeout=WITHIN_MS)
