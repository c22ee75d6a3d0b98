"""The flights example on a real broker, with a pipeline that is killed midway.

Every row of the result is compared with an aggregate of the raw data by DuckDB, digit by digit.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest
import yaml

from examples.flights import load, plot
from tests.progress_log import read_progress_log
from tests.spark.conftest import Line, Topics
from tests.waiting import eventually

EXAMPLE = Path(__file__).parents[2] / "examples" / "flights"
IMAGES = Path(__file__).parents[2] / "docs" / "images"
GROUP = "ottla-pipeline-hourly-delays"
_WITHIN_S = 240


@pytest.fixture(scope="module")
def record_counts(topics: Topics) -> dict[str, int]:
    """Creates the example's topics with all records. Returns the number of records of each."""
    for topic_resource in yaml.safe_load_all((EXAMPLE / "topics.yaml").read_text()):
        settings = {
            name.replace(".", "_"): str(value) for name, value in topic_resource["spec"].get("config", {}).items()
        }
        topics.create(topic_resource["metadata"]["name"], partitions=topic_resource["spec"]["partitions"], **settings)
    counts = dict.fromkeys(load.RECORDS, 0)
    for record in load.records():
        counts[record.topic] += 1
        topics.producer.produce(record.topic, record.value, record.key)
        if counts[record.topic] % 10_000 == 0:
            topics.producer.poll(0)
    assert topics.producer.flush(60) == 0
    return counts


@pytest.mark.slow
def test_loader_yields_the_declared_number_of_records_of_each_topic(record_counts: dict[str, int]) -> None:
    assert record_counts == load.RECORDS


def test_events_are_in_order_of_actual_times_but_not_of_schedules() -> None:
    last = scheduled = ""
    out_of_order = departures = delay_minutes = 0
    for event in load.flights(load.data_folder()):
        assert event.actual >= last
        last = event.actual
        departures += event.event == "departure"
        delay_minutes += (event.delay or 0) if event.event == "departure" else 0
        out_of_order += event.scheduled < scheduled
        scheduled = event.scheduled
    assert departures == 328_521
    assert delay_minutes == 4_152_200
    assert out_of_order > 100_000


@pytest.fixture
def command(topics: Topics, tmp_path: Path) -> list[str]:
    return [
        sys.executable,
        "-m",
        "ottla_spark",
        "run",
        "--pipeline",
        str(tmp_path / "pipeline.yaml"),
        "--bootstrap",
        topics.address,
        "--master",
        "local[2,2]",
        "--progress",
        str(tmp_path / "progress.jsonl"),
        "--checkpoint",
        str(tmp_path / "checkpoint"),
    ]


def write_pipeline(folder: Path, *, batch_size: int, **changes: object) -> None:
    """Writes the example's pipeline with another batch size and other changes of its spec."""
    pipeline = yaml.safe_load((EXAMPLE / "pipeline.yaml").read_text())
    pipeline["spec"]["sources"]["flights"]["maxOffsetsPerTrigger"] = batch_size
    pipeline["spec"] |= changes
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(pipeline))


def wait_for_batches(process: subprocess.Popen[bytes], progress: Path, count: int) -> list[Line]:
    """The lines of batches in the progress log once there are this many."""

    def batches() -> list[Line]:
        assert process.poll() is None, progress.read_text()
        found = [line for line in read_progress_log(progress) if "batch" in line] if progress.exists() else []
        return found if len(found) >= count else []

    return eventually(
        batches, within_s=_WITHIN_S, message=lambda: f"{count} batches: {progress.exists() and progress.read_text()}"
    )


@pytest.mark.slow
def test_pipeline_that_is_killed_and_restarted_computes_the_right_table(
    record_counts: dict[str, int], topics: Topics, command: list[str], tmp_path: Path
) -> None:
    # The example's pipeline, except that it stops when all flights are read. Batches are small at
    # first, so that it is killed early.
    write_pipeline(tmp_path, batch_size=20_000, trigger={"availableNow": True})
    progress = tmp_path / "progress.jsonl"

    begun = time.monotonic()
    killed = subprocess.Popen(command)
    try:
        wait_for_batches(killed, progress, 1)
        print(f"first rows after {time.monotonic() - begun:.1f} s")
        batches = wait_for_batches(killed, progress, 4)
    finally:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    assert 0 < batches[-1]["lag"]["records"] < record_counts["flights"]

    write_pipeline(tmp_path, batch_size=150_000, trigger={"availableNow": True})
    done = subprocess.run(command, capture_output=True, text=True, timeout=_WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    last = read_progress_log(progress)[-1]
    assert last["state"] == "finished"

    written = Counter(
        (message.headers["ottla.batch"], message.headers["ottla.sequence"]) for message in topics.read("hourly-delays")
    )
    assert max(written.values()) == 1, "the batch that was killed is not written twice"
    rows = newest(topics, "hourly-delays")
    wanted = expected_table()
    assert len(wanted) > 100_000
    assert rows.keys() == wanted.keys()
    assert [key for key, row in wanted.items() if rows[key] != row] == []
    drawn = plot.draw(msgspec.convert(list(rows.values()), list[plot.Delays]))
    assert drawn == (IMAGES / "flights.svg").read_text(), "the documentation's plot is of these rows"
    assert topics.read("flights-dead-letters") == []
    assert sum(topics.committed_offsets(GROUP, "flights", 3).values()) == record_counts["flights"]


def newest(topics: Topics, topic: str) -> dict[str | None, dict[str, Any]]:
    """The latest row of each key."""
    return {message.key: message.json for message in topics.read(topic)}


def expected_table() -> dict[str | None, dict[str, Any]]:
    """The result of the example's pipeline as DuckDB computes it from the raw data."""
    data = load.data_folder()
    sql = duckdb.connect()
    import pandas

    flights = pandas.read_csv(data / "flights.csv.zip")  # noqa: F841 (DuckDB finds it by its name)
    rows = sql.sql(f"""
        SELECT strftime(time_hour::TIMESTAMP, '%Y-%m-%dT%H:%M:%SZ') AS hour,
               origin, carrier, airports.name, airlines.name,
               count(*), avg(dep_delay::INT), round(quantile_cont(dep_delay::INT, 0.95), 2)
        FROM flights
        LEFT JOIN read_csv('{data}/airports.csv') airports ON airports.faa = origin
        LEFT JOIN read_csv('{data}/airlines.csv') airlines USING (carrier)
        WHERE dep_time IS NOT NULL
        GROUP BY ALL
    """).fetchall()
    return {
        f"{hour}|{origin}|{carrier}": {
            "hour": hour.replace("Z", ".000Z"),
            "airport": origin,
            "airport_name": airport,
            "carrier": carrier,
            "carrier_name": airline,
            "departures": count,
            "mean_delay": mean,
            "p95_delay": p95,
        }
        for hour, origin, carrier, airport, airline, count, mean, p95 in rows
    }


@pytest.mark.slow
def test_process_stops_on_sigterm(
    record_counts: dict[str, int], topics: Topics, command: list[str], tmp_path: Path
) -> None:
    sink = {"from": "delays", "topic": "stopped-delays", "key": ["hour", "airport", "carrier"], "outputMode": "update"}
    write_pipeline(tmp_path, batch_size=5_000, sinks=[sink], consumerGroup="stopped")
    topics.create("stopped-delays", partitions=1)
    report = tmp_path / "report.html"
    process = subprocess.Popen([*command, "--report", str(report)])
    try:
        wait_for_batches(process, tmp_path / "progress.jsonl", 1)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
    lines = read_progress_log(tmp_path / "progress.jsonl")
    assert [line["state"] for line in lines if line["state"] != "running"] == ["starting", "stopping", "stopped"]
    written = sum(line.get("written", 0) for line in lines)
    assert len(topics.read("stopped-delays")) == written, "the progress log counts every written row"
    plotted = report.read_text()
    assert (
        f'<th>Rows written</th><td class="number">{written:,}</td>' in plotted
        and '<td class="number">stopped' in plotted
    )
    assert {"Rows read per second", "Lag in records"} <= set(re.findall("<h2>(.*?)</h2>", plotted))
    ends = json.loads((tmp_path / "checkpoint" / "letters.json").read_text())["flights"]
    assert sum(topics.committed_offsets("stopped", "flights", 3).values()) == sum(ends.values())


def test_cases_of_the_example_pass_and_a_failed_case_shows_the_difference(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE / "pipeline.test", tmp_path, dirs_exist_ok=True)
    for folder in ("given", "expect"):
        (tmp_path / "wrong" / folder).mkdir(parents=True)
    (tmp_path / "wrong" / "given" / "airlines.jsonl").write_text(
        '{"key": "UA", "value": {"carrier": "UA", "name": ""}}\n'
    )
    (tmp_path / "wrong" / "expect" / "delays.jsonl").write_text('{"departures": 1}\n')
    # A process of its own: a JVM that has begun without the connector cannot have it later, and
    # other tests need it.
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "ottla_spark",
            "test",
            "--pipeline",
            str(EXAMPLE / "pipeline.yaml"),
            "--cases",
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        timeout=_WITHIN_S,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "one-morning: passed",
        "wrong: failed",
        '  delays: missing: {"departures": 1}',
    ]
