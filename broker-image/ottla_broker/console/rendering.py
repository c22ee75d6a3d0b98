"""Renders pages from templates, which escape every value."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from ottla_broker.counted_nouns import count_noun

TEMPLATES: Final = Path(__file__).parent / "templates"
UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
DASH: Final = "–"


def make_environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(
        bytes=format_bytes,
        code_spans=mark_code_spans,
        count=format_count,
        time=format_time,
        partitions=partial(count_noun, noun="partition"),
        percent=format_percent,
        duration=format_duration,
        rate=format_rate,
    )
    return environment


def mark_code_spans(text: str) -> Markup:
    """Turns backticks, which descriptions of settings have around names and values, into
    `<code>`.
    """
    code = Markup("<code>{}</code>")
    return Markup().join(code.format(part) if index % 2 else escape(part) for index, part in enumerate(text.split("`")))


def format_bytes(size: int | None) -> str:
    """`1536` as `1.5 KiB`; a dash for None or a negative number, which mean unknown."""
    if size is None or size < 0:
        return DASH
    value, unit = float(size), 0
    while value >= 1024 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{size} B" if unit == 0 else f"{value:.1f} {UNITS[unit]}"


def format_count(count: int | None) -> str:
    """The number with thousands separators; a dash for None or a negative number."""
    return DASH if count is None or count < 0 else f"{count:,}"


def format_time(timestamp_ms: int | None) -> str:
    """The time in UTC with milliseconds; a dash for None, a negative time, and one after the year
    9999.
    """
    if timestamp_ms is None or timestamp_ms < 0:
        return DASH
    try:
        at = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return DASH
    return at.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03d}"


def format_duration(seconds: float) -> str:
    """`12 s`, `2.5 min`, `3.0 h`, `4.1 d`; a dash for a negative number, which means unknown."""
    if seconds < 0:
        return DASH
    for unit, length_s in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:,.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 or seconds == 0 else f"{seconds:.1f} s"


def format_rate(rate: float) -> str:
    """The number, with one decimal below 10; a dash for a negative number, which means unknown."""
    if rate < 0:
        return DASH
    return f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}" if rate >= 0.1 else "less than 0.1"


def format_percent(part: int, whole: int) -> str:
    return DASH if whole <= 0 else f"{100 * part / whole:.0f} %"


class Renderer:
    """`static_url`: returns the URL of a static file. `cluster_id`: returns the cluster's id; empty
    while the broker starts. `has_login`: users log in, and pages for others say nothing about the
    cluster.
    """

    def __init__(
        self, static_url: Callable[[str], str], node_id: int, cluster_id: Callable[[], str], *, has_login: bool
    ) -> None:
        self._environment = make_environment()
        self._environment.globals.update(
            static_url=static_url, node_id=node_id, cluster_id=cluster_id, has_login=has_login
        )

    def render(self, template: str, **values: object) -> str:
        return self._environment.get_template(template).render(**values)
