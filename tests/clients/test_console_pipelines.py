"""The pages of pipelines in a real browser, on a broker with reports of two pipelines."""

import asyncio
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from ottla_broker.wire.pipeline_report import PipelineReport, PipelineView
from ottla_operator.kafka.client import connect
from ottla_operator.kafka.reports import report_pipeline
from tests.brokers import BrokerProcess
from tests.browser import take_picture, take_screenshot
from tests.clients.console_pages import WITHIN_MS, assert_no_attack, run_on_thread, url_of
from tests.clients.hostile_values import HOSTILE

VIEWS = (
    PipelineView("flights", "source", "orders", "stream"),
    PipelineView("airports", "source", "airports", "table"),
    PipelineView("late", "step", target="sql", reads=("flights",)),
    PipelineView("named", "step", target="sql", reads=("late", "airports")),
    PipelineView("hourly", "step", target="sql", reads=("named",)),
    PipelineView("hourly", "sink", "delays.hourly", "topic", ("hourly",)),
    PipelineView("lake", "sink", target="iceberg flights.late", reads=("named",)),
    PipelineView("dead letters", "sink", "dead", reads=("flights", "airports")),
)
RUNNING = PipelineReport(
    "Running", "the driver is running.", "", 512.25, 1234, 2.5, "2026-11-27T01:00:00.000Z", 1, "ottla-pipeline-delays",
    "Deployment/delays-driver", "http://127.0.0.1:4040", VIEWS,
)  # fmt: skip
FAILING = PipelineReport("Failing", error="PipelineError: the topic airports does not exist", restarts=4, views=VIEWS)


def report(console: BrokerProcess, **reports: PipelineReport | None) -> None:
    async def send() -> None:
        async with connect(console.bootstrap, 30.0) as client:
            for name, one in reports.items():
                await report_pipeline(client, name, one)

    run_on_thread(lambda: asyncio.run(send()))


@pytest.fixture(autouse=True)
def _reports(console: BrokerProcess) -> Iterator[None]:
    report(console, delays=RUNNING, broken=FAILING)
    yield
    report(console, delays=None, broken=None)


def test_pipelines_show_rates_lag_errors_and_their_graph(tab: Page, console: BrokerProcess) -> None:
    tab.get_by_role("link", name="Pipelines").click()
    rows = tab.get_by_role("region", name="Pipelines").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.filter(has_text="broken")).to_contain_text("the topic airports does not exist")
    expect(rows.filter(has_text="delays").locator("td").nth(2)).to_have_text("512.2")
    take_screenshot(tab, "pipelines")
    tab.get_by_role("link", name="delays").click()
    figures = tab.locator(".figures")
    expect(figures).to_contain_text("StateRunning")
    expect(figures).to_contain_text("Lag in records1,234")
    expect(tab.get_by_role("link", name="Spark’s UI")).to_have_attribute("href", "http://127.0.0.1:4040")
    boxes = tab.locator("svg.graph g")
    expect(boxes).to_have_count(len(VIEWS))
    take_screenshot(tab, "pipeline-running")
    report(console, delays=FAILING)
    error = tab.get_by_role("region", name="Last error")
    expect(error).to_contain_text("the topic airports does not exist", timeout=WITHIN_MS)
    take_picture(tab, "pipeline")
    tab.locator("svg.graph a").filter(has_text="topic orders").click()
    expect(tab.get_by_role("heading", level=1)).to_have_text("orders")


def test_hostile_reports_are_shown_as_text(tab: Page, console: BrokerProcess) -> None:
    for text in HOSTILE:
        views = (PipelineView(text, "source", text, text), PipelineView(text, "sink", target=text, reads=(text,)))
        report(console, broken=PipelineReport(text, text, text, group=text, spark_ui=text, views=views))
        for path in ("/pipelines", "/pipeline?name=broken"):
            tab.goto(url_of(console) + path)
            assert_no_attack_besides_the_graph(tab)
    report(console, broken=PipelineReport("Running", spark_ui="javascript:attacked()"))
    tab.goto(f"{url_of(console)}/pipeline?name=broken")
    expect(tab.get_by_role("main")).to_contain_text("Spark’s UI is off")


def assert_no_attack_besides_the_graph(tab: Page) -> None:
    """The page has the graph, an svg element, on purpose; no image or script may be in it."""
    assert tab.locator("main svg svg, main svg script, main svg image, main svg foreignObject").count() == 0
    tab.evaluate("document.querySelectorAll('main svg.graph').forEach((one) => one.remove())")
    assert_no_attack(tab)
