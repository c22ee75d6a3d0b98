"""The pages of groups in a real browser, on a real broker."""

import re

from playwright.sync_api import Page, expect

from tests.brokers import BrokerProcess
from tests.browser import take_picture, take_screenshot
from tests.clients.console_pages import PLOTS_ARE_DRAWN, RECORDS, run_consumer, url_of
from tests.waiting import eventually


def test_group_shows_members_assignment_and_lag(tab: Page, console: BrokerProcess) -> None:
    with run_consumer(console, "billing", "group-classic", commit_count=RECORDS - 10):
        tab.get_by_role("link", name="Groups").click()
        tab.get_by_role("link", name="billing").click()
        figures = tab.locator(".figures")
        expect(figures).to_contain_text("Stable")
        expect(figures).to_contain_text("Lag in records10")
        rows = tab.get_by_role("region", name="Partitions").locator("tbody tr")
        expect(rows).to_have_count(6)
        expect(rows.first).to_contain_text("group-classic")
        expect(tab.get_by_role("region", name="Members").locator("tbody tr")).to_have_count(1)
        # The records are older than ten minutes: the rate is the lowest, one record in ten minutes.
        expect(figures).to_contain_text(re.compile(r"Lag in time, about\d+\.0 min"))
        plot = tab.locator(".plot .u-legend")
        expect(plot).to_contain_text("lag")
        samples = eventually(lambda: sampled_lags(tab, console), within_s=30)
        assert set(samples) == {10}
        tab.wait_for_function(PLOTS_ARE_DRAWN, arg=0.9)  # a single sample, too, is at the end of the time axis
        take_picture(tab, "group")
        tab.get_by_role("link", name="Dry run of an offset reset").click()
        expect(tab.locator(".problem.warning")).to_contain_text("only while it has no members")
        tab.locator("select[name=to]").select_option("shift")
        tab.get_by_label("at", exact=True).fill("-1000")
        tab.get_by_role("button", name="Dry run").click()
        offsets = tab.get_by_role("region", name="Offsets").locator("tbody tr")
        expect(offsets).to_have_count(6)
        assert {row.locator("td").nth(3).inner_text() for row in offsets.all()} == {"0"}
        take_screenshot(tab, "group-reset")
        undo = tab.request.get(url_of(console) + str(tab.get_by_role("link", name="undo").get_attribute("href")))
        lines = undo.text().splitlines()
        assert sum(int(line.split(",")[2]) for line in lines) == RECORDS - 10
    tab.goto(f"{url_of(console)}/topics/orders")
    readers = tab.get_by_role("region", name="Groups that read the topic").locator("tbody tr")
    expect(readers.filter(has_text="billing").locator("td").last).to_have_text("10")


def sampled_lags(tab: Page, console: BrokerProcess) -> list[int]:
    lags: list[int] = tab.request.get(f"{url_of(console)}/group/lag?id=billing").json()["lag"]
    return lags


def test_groups_of_the_consumer_protocol_and_strange_names_are_shown(tab: Page, console: BrokerProcess) -> None:
    name = "<i>a/b?c&d</i>"
    with run_consumer(console, name, "group-newer", commit_count=1, group_protocol="consumer"):
        tab.goto(f"{url_of(console)}/groups?search=b%3Fc")
        tab.get_by_role("link", name=name).click()
        expect(tab.get_by_role("heading", level=1)).to_have_text(name)
        expect(tab.locator(".figures")).to_contain_text("uniform")
        expect(tab.get_by_role("region", name="Members").locator("tbody tr")).to_contain_text(
            "orders: 0, 1, 2, 3, 4, 5"
        )
