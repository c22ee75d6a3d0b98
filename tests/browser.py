"""A real Chromium, for tests of web pages. With `make console-pictures` they save screenshots in
build/screenshots.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.jars import skip_or_fail_in_ci

ROOT: Final = Path(__file__).parents[1]
SCREENSHOTS: Final = ROOT / "build" / "screenshots"
PICTURES_WANTED: Final = bool(os.environ.get("OTTLA_PICTURES"))
"""Set by `make console-pictures`."""
WIDE: Final = (1280, 800)
PHONE: Final = (390, 800)


@contextmanager
def run_chromium() -> Iterator[Browser]:
    """Debian's Chromium, which `make test` installs where it runs as root. Skips the test, or fails
    in CI, if it is missing.
    """
    program = shutil.which("chromium") or skip_or_fail_in_ci(
        "Chromium is not installed (Debian: apt-get install chromium)"
    )
    with sync_playwright() as playwright:
        # Its sandbox needs a user other than root; pages come from this machine.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_tab(browser: Browser, size: tuple[int, int] = WIDE, *, dark: bool = False) -> Iterator[Page]:
    """A tab without cookies. Fails at the end if a page opened a dialog or reported an error; what
    the content security policy stops is reported as one.

    A browser context without open tabs is used again if there is one. For a new context the browser
    would start a process and compile the pages' scripts again.
    """
    problems: list[str] = []
    context = _unused_context(browser)
    try:
        page = context.new_page()
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.emulate_media(color_scheme="dark" if dark else "light")
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(f"a page opened a dialog: {dialog.message}"))
        yield page
    finally:
        for it in context.pages:
            it.close()
        context.clear_cookies()
    assert not problems, problems


def _unused_context(browser: Browser) -> BrowserContext:
    """A context that `open_tab` made before and whose tabs are closed, or a new one."""
    return next((it for it in browser.contexts if not it.pages), None) or browser.new_context()


def take_screenshot(page: Page, name: str) -> None:
    """Saves a screenshot in SCREENSHOTS if PICTURES_WANTED."""
    if not PICTURES_WANTED:  # each takes as long as opening the page
        return
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png")


def take_picture(page: Page, name: str) -> None:
    """Saves a screenshot also as docs/images/console-<name>.png, for the documentation, if
    PICTURES_WANTED."""
    take_screenshot(page, name)
    if PICTURES_WANTED:
        shutil.copy(SCREENSHOTS / f"{name}.png", ROOT / "docs" / "images" / f"console-{name}.png")
