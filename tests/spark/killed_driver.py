"""Pipelines whose driver is killed at the steps of a batch, for all sinks that are tables."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ottla_operator.resources.common import API_VERSION
from tests.spark.conftest import Runner, events
from tests.spark.dying_driver import NEVER, run_driver

ROWS: Final = 60
AMID: Final = "amid the rows"
_STEPS_FILE: Final = """\
import os
import signal
from pathlib import Path

from pyspark.sql import functions as F

FOLDER = Path(__file__).parent


def kill_once(number):
    armed = FOLDER / "armed"
    if number == {dies_at} and armed.exists():
        armed.unlink()
        os.kill(int((FOLDER / "driver.pid").read_text()), signal.SIGKILL)
    return number


def rows(tables):
    (FOLDER / "driver.pid").write_text(str(os.getpid()))
    return tables["events"].select(F.udf(kill_once, "int")("id").alias("id"), "city")
"""
NO_FIELDS: Final[Mapping[str, Any]] = {}
Step = tuple[str, str]
"""Function, and whether the driver dies before or after it."""

_WRITE_PARQUET: Final = "ottla_spark.streaming.sink:write_parquet"
PARQUET_STEPS: Final[Sequence[Step | str]] = (AMID, (_WRITE_PARQUET, "before"), (_WRITE_PARQUET, "after"))


def upserted(numbers: range) -> list[dict[str, Any]]:
    """Events whose ids are 0 to 9, so that later ones replace earlier ones."""
    return [{"id": number % 10, "city": f"city {number}"} for number in numbers]


def run_and_kill(
    pipeline: Runner,
    topic: str,
    sink: Mapping[str, Any],
    steps: Sequence[Step | str],
    check: Callable[[int], None],
    *arguments: str,
    fields: Mapping[str, Any] = NO_FIELDS,
    checkpoint: str = "",
) -> None:
    """Kills the driver at one step after the other of one batch, and then lets the batch run again.

    check: takes the number of records of the topic, all of which are to be in the table once.
    fields: further fields of the spec. checkpoint: a URL; by default it is a folder.
    """
    topics, folder = pipeline.topics, pipeline.folder
    (folder / "steps.py").write_text(_STEPS_FILE.format(dies_at=5))
    spec = {
        "clusterRef": {"name": "c"},
        "sources": {"events": events(topic)},
        "transforms": [{"name": "killed", "python": "steps.py:rows"}],
        "sinks": [{"from": "killed", **sink}],
        "trigger": {"availableNow": True},
        "spark": {"conf": {"spark.sql.shuffle.partitions": "2"}},
        **fields,
    }
    document = {"apiVersion": API_VERSION, "kind": "Pipeline", "metadata": {"name": "p"}, "spec": spec}
    file = folder / "p.yaml"
    file.write_text(json.dumps(document))
    command = [
        *(
            "run",
            "--pipeline",
            str(file),
            "--bootstrap",
            topics.address,
            "--checkpoint",
            checkpoint or str(folder / "killed"),
        ),
        *("--progress", str(folder / "killed.jsonl"), "--master", "local[2,2]", *arguments),
    ]
    _write_keyed(pipeline, topic, range(ROWS))
    assert run_driver("", NEVER, *command) == os.EX_OK, _last_error(folder)
    check(ROWS)
    _write_keyed(pipeline, topic, range(ROWS, 2 * ROWS))
    for step in steps:
        if isinstance(step, str):
            (folder / "armed").touch()
            code = run_driver("", NEVER, *command)
            assert not (folder / "armed").exists(), f"{step}: no task has killed the driver"
        else:
            code = run_driver(*step, *command)
        assert code == -signal.SIGKILL, f"{step}: the driver was not killed, exit code {code}: {_last_error(folder)}"
    assert run_driver("", NEVER, *command) == os.EX_OK, _last_error(folder)
    check(2 * ROWS)


def _write_keyed(pipeline: Runner, topic: str, numbers: range) -> None:
    """Records of an id are in one partition, in their order."""
    for value in upserted(numbers):
        pipeline.topics.write(topic, value, key=str(value["id"]))


def _last_error(folder: Path) -> str:
    return (folder / "killed.jsonl").read_text()[-500:]
