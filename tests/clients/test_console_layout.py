"""The console's pages in a real browser: their width, the contrast of their texts, names of their
controls for screen readers, and whether the Tab key reaches them.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.brokers import BrokerProcess
from tests.browser import PHONE, WIDE, open_tab, take_screenshot
from tests.clients.console_pages import NOTE, SHIPMENT, register, run_console, run_consumer, url_of


@pytest.fixture(scope="module")
def console() -> Iterator[BrokerProcess]:
    with run_console(write="everyone") as broker:
        yield broker


PAGES = (
    "/access/why",
    "/mirrors",
    "/pipelines",
    "/topics/orders/messages/0/0",
    "/topic/create",
    "/topics/orders/produce",
    "/topics/orders/delete",
    "/topics/orders/configs/retention.ms",
    "/topics/orders/messages/0/0/copy",
    "/group/reset?id=billing&to=earliest",
    "/cluster",
    "/cluster/departure?broker=1",
    "/cluster/metadata",
    "/access",
    "/access/users",
    "/access/quotas",
    "/schemas",
    "/schema?subject=shipments-value",
    "/groups",
    "/group?id=billing",
    "/",
    "/topics",
    "/topics/orders",
    "/topics/orders/messages",
    "/topics/orders/messages?filter=value.amount<9",
)


@pytest.mark.parametrize(
    ("size", "dark"),
    [
        pytest.param(WIDE, False, id="wide-light"),
        pytest.param(WIDE, True, id="wide-dark", marks=pytest.mark.slow),
        pytest.param(PHONE, False, id="phone-light", marks=pytest.mark.slow),
        pytest.param(PHONE, True, id="phone-dark", marks=pytest.mark.slow),
    ],
)
def test_pages_fit_the_screen_and_are_accessible(
    browser: Browser, console: BrokerProcess, size: tuple[int, int], dark: bool
) -> None:
    register(console, "shipments-value", SHIPMENT, SHIPMENT.replace("]}", f",{NOTE}]}}"))
    with open_tab(browser, size, dark=dark) as page, run_consumer(console, "billing", "layout", commit_count=10):
        for path in PAGES:
            page.goto(url_of(console) + path)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= size[0], path
            assert page.evaluate(LOW_CONTRASTS) == [], path
            assert page.evaluate(UNNAMED_CONTROLS) == [], path
            assert page.evaluate(UNREACHABLE_CONTROLS) == [], path
            assert page.evaluate("document.documentElement.lang") == "en", path
            name = path.partition("?")[0].strip("/").replace("/", "-") or "overview"
            take_screenshot(page, f"{name}-{size[0]}-{'dark' if dark else 'light'}")


CONTROLS = 'document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a[href]")'

# Controls for which a screen reader has no name.
UNNAMED_CONTROLS = f"""() => [...{CONTROLS}]
  .filter((one) => one.checkVisibility())
  .filter((one) => !(one.labels?.length || one.getAttribute("aria-label") || one.textContent.trim()))
  .map((one) => one.outerHTML.slice(0, 80))"""

# Controls that the Tab key skips, or reaches in another order than that of the page.
UNREACHABLE_CONTROLS = f"""() => [...{CONTROLS}]
  .filter((one) => one.checkVisibility() && !one.disabled && one.tabIndex !== 0)
  .map((one) => one.outerHTML.slice(0, 80))"""

# Texts whose contrast with their background is below WCAG 2.2's 4.5:1 (level AA).
LOW_CONTRASTS = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const luminance = (colour) => colour.slice(0, 3)
    .map((one) => one / 255).map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, index) => sum + one * [0.2126, 0.7152, 0.0722][index], 0);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = rgb(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility()) continue;
    const [low, high] = [luminance(rgb(getComputedStyle(element).color)), luminance(ground(element))]
      .sort((one, other) => one - other);
    if ((high + 0.05) / (low + 0.05) < 4.5) found.push(element.tagName + " " + element.textContent.trim().slice(0, 40));
  }
  return found;
}"""
