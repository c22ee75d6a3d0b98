from pathlib import Path

from ottla_broker.config.settings_page import settings_page

DOCS = Path(__file__).parents[3] / "docs"


def test_page_of_settings_is_current() -> None:
    assert (DOCS / "settings.md").read_text() == settings_page(), (
        "run: python -m ottla_broker.config.settings_page > docs/settings.md"
    )
