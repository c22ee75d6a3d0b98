"""When comparisons of sinks run."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from ottla_operator.resources.replacement import Comparison
from ottla_operator.resources.sinks import Sink
from ottla_spark.streaming import comparison
from ottla_spark.streaming.comparison import SinkComparer


def test_the_last_comparison_begins_after_the_last_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    may_read, reports = threading.Event(), list[Sequence[Comparison]]()
    rows_when_begun = iter([1, 2])

    def compare(*_: object) -> Comparison:
        rows = next(rows_when_begun)
        may_read.wait(10)
        return Comparison(sink="copy", at="2026-01-01T00:00:00Z", only_old=2 - rows)

    monkeypatch.setattr(comparison, "compare_sink", compare)
    sink = Sink.parse({"from": "events", "topic": "new", "compareWith": "old"})
    comparer = SinkComparer(cast(Any, None), [sink], Path(), {}, reports.append)
    comparer.run_if_due()
    finishing = threading.Thread(target=comparer.finish)
    finishing.start()
    may_read.set()
    finishing.join(10)
    assert [found.only_old for (found,) in reports] == [1, 0]
    comparer.finish()
    assert len(reports) == 2, "equal sinks are not compared again"
