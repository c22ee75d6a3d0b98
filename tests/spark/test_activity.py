"""The example of page views: sessions and most viewed pages are those that plain Python counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import yaml

from examples.activity import load, plot
from tests.spark.conftest import Runner, Topics

EXAMPLE = Path(__file__).parents[2] / "examples" / "activity"
GAP, QUARTER, WATERMARK_DELAY = timedelta(minutes=30), timedelta(minutes=15), timedelta(minutes=5)


def sessions_of(views: list[load.View]) -> Counter[tuple[str, datetime, datetime, int]]:
    """Counts the sessions, each as its visitor, first and last view, and number of views."""
    by_visitor: dict[str, list[datetime]] = defaultdict(list)
    for view in views:
        by_visitor[view.visitor].append(view.at)
    found: Counter[tuple[str, datetime, datetime, int]] = Counter()
    for visitor, moments in by_visitor.items():
        session = [moments[0]]
        for at in moments[1:]:
            if at >= session[-1] + GAP:
                found[visitor, session[0], session[-1], len(session)] += 1
                session = []
            session.append(at)
        found[visitor, session[0], session[-1], len(session)] += 1
    return found


def test_sessions_and_most_viewed_pages_are_those_that_plain_python_counts(pipeline: Runner, topics: Topics) -> None:
    topics.create("page-views", "sessions", partitions=3)
    topics.create("top-pages")
    spec = yaml.safe_load((EXAMPLE / "pipeline.yaml").read_text())["spec"]
    spec |= {"trigger": {"availableNow": True}, "spark": {"conf": {"spark.sql.shuffle.partitions": "2"}}}
    views = load.page_views(1_000)
    for part in (views[: len(views) // 2], views[len(views) // 2 :]):
        for view in part:
            topics.producer.produce("page-views", msgspec.json.encode(view), view.visitor)
        assert topics.producer.flush(30) == 0
        pipeline(spec, name="activity")
    watermark = views[-1].at - WATERMARK_DELAY

    rows = [message.json for message in topics.read("sessions")]
    found = Counter((row["visitor"], _time(row, "started"), _time(row, "ended"), row["views"]) for row in rows)
    ended = {session: n for session, n in sessions_of(views).items() if session[2] + GAP <= watermark}
    assert len(ended) > 800
    assert found == Counter(ended)

    quarters = [msgspec.json.decode(message.value, type=plot.Quarter) for message in topics.read("top-pages")]
    expected: dict[datetime, Counter[str]] = defaultdict(Counter)
    for view in views:
        expected[view.at - (view.at - load.DAY) % QUARTER][view.page] += 1
    assert {it.since for it in quarters} == {since for since in expected if since + QUARTER <= watermark}
    for quarter in quarters:
        counts = expected[quarter.since]
        most_viewed = sorted(((n, page) for page, n in counts.items()), reverse=True)[:10]
        assert [(it.views, it.page) for it in quarter.top] == most_viewed
        assert quarter.views == counts.total()


def _time(row: dict[str, Any], column: str) -> datetime:
    return datetime.fromisoformat(row[column])
