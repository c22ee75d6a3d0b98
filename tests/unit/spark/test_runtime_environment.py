"""When a pipeline begins."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ottla_spark.runtime_environment import RuntimeEnvironment


def test_pipeline_begins_at_once_without_a_start_file() -> None:
    assert RuntimeEnvironment("", "").wait_for_start(threading.Event())


def test_pipeline_begins_when_its_start_file_exists(tmp_path: Path) -> None:
    environment = RuntimeEnvironment("", "", start_file=tmp_path / "released")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(environment.wait_for_start, threading.Event())
        (tmp_path / "released").touch()
        assert waiting.result(timeout=30)


def test_pipeline_that_is_stopped_before_does_not_begin(tmp_path: Path) -> None:
    environment, stop = RuntimeEnvironment("", "", start_file=tmp_path / "released"), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(environment.wait_for_start, stop)
        stop.set()
        assert not waiting.result(timeout=30)
