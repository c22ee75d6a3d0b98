"""A running pipeline from outside: HTTP endpoint, termination message, stop."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla_spark.__main__ import main
from ottla_spark.http_server import serve_progress
from ottla_spark.progress import ProgressLog, format_lag, parse_progress_event
from ottla_spark.progress_snapshot import ProgressSnapshot
from ottla_spark.stop import find_runners, stop_runner
from tests.unit.spark.progress_events import EVENT

LAG = format_lag({("flights", 0): 50, ("flights", 1): 0}, {("flights", 0): 1000}, 3500)
RUNNER = """\
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), sys.exit(0)))
print("runs", flush=True)
signal.pause()
"""


def progress_after_two_batches() -> ProgressSnapshot:
    """The snapshot after two batches, of two queries."""
    snapshot = ProgressSnapshot()
    log = ProgressLog(None, "hourly", snapshot)
    log.write_state("running", group="g")
    log.write_batch(parse_progress_event(EVENT), LAG)
    log.write_batch(parse_progress_event({**EVENT, "name": "other", "numInputRows": 1, "inputRowsPerSecond": 0.5}), LAG)
    return snapshot


def test_snapshot_adds_up_the_lines_of_the_progress_log() -> None:
    snapshot = progress_after_two_batches().to_json()
    assert snapshot.pop("lastProgress").endswith("Z")
    assert snapshot == {
        "pipeline": "hourly",
        "state": "running",
        "error": None,
        "rows": 60001,
        "written": 24,
        "deadLetters": 6,
        "rejected": [
            {"view": "departures", "rule": "known", "rows": 0},
            {"view": "departures", "rule": "sane", "rows": 2},
            {"view": "flights", "rule": "undecoded", "rows": 4},
        ],
        "inputRowsPerSecond": 1501.0,
        "lagRecords": 50,
        "lagSeconds": 2.5,
        "sparkUi": None,
        "caughtUp": True,
        "catchUpSecondsLeft": None,
        "comparisons": [],
    }
    assert ProgressSnapshot().to_json()["lagRecords"] is None, "nothing is known yet"
    with_ui = ProgressSnapshot()
    with_ui.update({"pipeline": "hourly", "state": "starting", "sparkUi": "http://driver:4040"})
    assert with_ui.to_json()["sparkUi"] == "http://driver:4040"


def test_metrics_are_in_prometheus_format() -> None:
    snapshot = progress_after_two_batches()
    ProgressLog(None, "hourly", snapshot).write_state("failed", error="it failed")
    found: dict[tuple[str, ...], float] = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(snapshot.to_prometheus())
        for sample in family.samples
    }
    assert found["ottla_pipeline_rows_total", "hourly"] == 60001
    assert found["ottla_pipeline_rejected_rows_total", "hourly", "departures", "sane"] == 2
    assert found["ottla_pipeline_lag_records", "hourly", "flights", "0"] == 50
    assert found["ottla_pipeline_lag_seconds", "hourly"] == 2.5
    assert [key[2] for key, value in found.items() if key[0] == "ottla_pipeline_state" and value] == ["failed"]
    assert snapshot.to_json()["error"] == "it failed"


def test_metrics_that_the_chart_uses_exist() -> None:
    files = Path(__file__).parents[3] / "charts" / "ottla" / "files"
    watched = re.findall(
        r"ottla_pipeline_\w+", "".join(it.read_text() for it in files.rglob("*") if it.suffix in (".yaml", ".json"))
    )
    assert watched and set(watched) <= set(
        re.findall(r"^ottla_pipeline_\w+", progress_after_two_batches().to_prometheus(), re.MULTILINE)
    )


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_http_endpoint_is_ready_once_the_queries_run() -> None:
    snapshot = ProgressSnapshot()
    with serve_progress(("", 0), snapshot) as port:
        assert get(port, "/livez") == (200, "ok\n")
        assert get(port, "/readyz") == (503, "starting\n")
        ProgressLog(None, "hourly", snapshot).write_state("running")
        assert get(port, "/readyz") == (200, "running\n")
        assert json.loads(get(port, "/status")[1])["state"] == "running"
        assert get(port, "/metrics?x=1")[0] == 200
        assert get(port, "/")[0] == 404
    with pytest.raises(OSError):
        get(port, "/livez")


def test_error_is_written_to_the_termination_message(tmp_path: Path) -> None:
    message = tmp_path / "last-words"
    arguments = ["run", "--bootstrap", "b:1", "--termination-message", str(message)]
    assert main([*arguments, "--pipeline", str(tmp_path / "none.yaml")]) == 2
    assert message.read_text() == f"{tmp_path / 'none.yaml'}: No such file or directory\n"


def test_runner_is_found_and_stopped(tmp_path: Path) -> None:
    program = tmp_path / "ottla_spark" / "__main__.py"
    program.parent.mkdir()
    program.write_text(RUNNER)
    process = subprocess.Popen([sys.executable, str(program), "run"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "runs\n"
        assert process.pid in find_runners()
        stop_runner(process.pid)
        assert process.poll() == 0
        stop_runner(process.pid)  # it is gone: nothing to wait for
    finally:
        process.kill()
        process.wait()
