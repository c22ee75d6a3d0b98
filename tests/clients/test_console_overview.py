"""The overview of three brokers under load in a real browser, and a simulated departure of one."""

import math
from collections.abc import Iterator
from contextlib import ExitStack

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import NewTopic
from playwright.sync_api import Browser, Page, expect

from tests.browser import PICTURES_WANTED, open_tab, take_picture
from tests.clients import librdkafka as rd
from tests.clients.console_pages import PLOTS_ARE_DRAWN, WITHIN_MS, run_on_thread
from tests.clusters import ProcessCluster, run_cluster
from tests.e2e.background_producer import fail_on_rejected_record, produce_in_background
from tests.ports import free_port
from tests.waiting import eventually

TALL = (1280, 1020)
"""Size of a window that shows the plots without scrolling."""
TOPIC, PARTITIONS = "payments", 6
SAMPLES = 14 if PICTURES_WANTED else 2
"""Number of samples to wait for; after the first there is one every 10 seconds."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProcessCluster]:
    """A cluster under a load whose bytes rise and fall. It starts before the browser, whose API has
    the main thread's event loop.
    """
    with ExitStack() as stack:
        made = stack.enter_context(run_cluster("ottla", 3, start=False, console_enable="true"))
        for number, broker in made.brokers.items():
            broker.settings |= {"http.listener": f"127.0.0.1:{free_port()}", "broker.rack": f"rack-{number}"}
        made.start()
        admin = rd.admin_client(made.bootstrap)
        for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)]).values():
            created.result(30)
        stack.enter_context(
            produce_in_background(
                made.bootstrap, TOPIC, PARTITIONS, value_of, lambda _: None, fail_on_rejected_record, pause_s=0.1
            )
        )
        reader = ck.Consumer({"bootstrap.servers": made.bootstrap, "group.id": "billing"})
        stack.callback(reader.close)
        reader.assign([ck.TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        yield made


def value_of(number: int) -> str:
    return "x" * round(500 + 400 * math.sin(number / 1500))


def test_overview_shows_what_clients_do_and_how_long_it_takes(cluster: ProcessCluster, browser: Browser) -> None:
    url = f"http://{cluster.brokers[1].settings['http.listener']}"
    with open_tab(browser, TALL) as tab:
        tab.goto(url)
        expect(tab.get_by_role("main").get_by_role("status")).to_contain_text("All is well", timeout=WITHIN_MS)
        eventually(lambda: len(samples(tab)["at_s"]) >= SAMPLES, within_s=SAMPLES * 20)
        tab.reload()
        tab.wait_for_function(PLOTS_ARE_DRAWN, arg=0.9)
        assert all(values[-1] is not None for values in samples(tab).values())
        expect(tab.get_by_role("region", name="Brokers").locator("tbody tr")).to_contain_text(
            ["rack-1", "rack-2", "rack-3"]
        )
        take_picture(tab, "overview")
        assert_quorum_is_shown(tab, cluster)
        take_picture(tab, "cluster")
        tab.get_by_label("What would happen if broker").select_option("2")
        tab.get_by_role("button", name="Simulate").click()
        expect(tab.get_by_role("main").get_by_role("status")).to_have_text(
            "No partition would go offline or begin to refuse records."
        )
        take_picture(tab, "departure")


def assert_quorum_is_shown(tab: Page, cluster: ProcessCluster) -> None:
    """The cluster page requests /cluster/quorum, and shows every voter and the leader."""
    with tab.expect_response("**/cluster/quorum") as part:
        tab.get_by_role("link", name="Cluster").click()
    assert part.value.status == 200
    quorum = run_on_thread(cluster.describe_quorum)
    figures = tab.locator(".figures", has_text="High watermark")
    expect(figures).to_contain_text(f"Leader{quorum.leader_id} Epoch{quorum.leader_epoch}")
    roles = [
        (int(it.replica_id), "leader" if it.replica_id == quorum.leader_id else "voter") for it in quorum.current_voters
    ]
    rows = tab.get_by_role("region", name="Replicas of the metadata log").locator("tbody tr")
    expect(rows).to_have_count(3)
    shown = [row.locator("td").all_inner_texts()[:2] for row in rows.all()]
    assert sorted(shown) == sorted([str(broker), role] for broker, role in roles)


def samples(tab: Page) -> dict[str, list[float | None]]:
    answer: dict[str, list[float | None]] = tab.request.get(f"{tab.url}throughput").json()
    return answer
