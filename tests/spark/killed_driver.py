"""Pipelines whose driver is killed at the steps of a batch, for all sinks that are tables.

Each start of a driver costs a JVM. So a pipeline has several sinks, and is killed when the batch of
each of them is at its next step.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tests.spark.conftest import Runner, events, pipeline_document
from tests.spark.death import Step
from tests.spark.dying_driver import run_driver

ROWS: Final = 60
_STEPS_FILE: Final = """\
import os
import signal
import uuid
from pathlib import Path

from pyspark.sql import functions as F

FOLDER = Path(__file__).parent
ARMED = FOLDER / "armed"
DEADLY_ID, QUERIES = 5, {queries}


def wait_for_death(number):
    if number == DEADLY_ID and ARMED.exists():
        (ARMED / str(uuid.uuid4())).touch()
        if len(list(ARMED.iterdir())) == QUERIES:
            os.kill(int((FOLDER / "driver.pid").read_text()), signal.SIGKILL)
        signal.pause()
    return number


def rows(tables):
    (FOLDER / "driver.pid").write_text(str(os.getpid()))
    return tables["events"].select(F.udf(wait_for_death, "int")("id").alias("id"), "city")
"""
AMID_ROWS: Final[list[Step]] = []
"""Stands for the steps of a death while each sink computes its rows."""
NO_FIELDS: Final[Mapping[str, Any]] = {}


def check_nothing() -> None:
    """For tables that cannot be read while a batch of theirs is unfinished."""


def upserted(numbers: range) -> list[dict[str, Any]]:
    """Events whose ids are 0 to 9, so that later ones replace earlier ones."""
    return [{"id": number % 10, "city": f"city {number}"} for number in numbers]


def run_and_kill(
    pipeline: Runner,
    topic: str,
    sinks: Mapping[str, Mapping[str, Any]],
    deaths: Sequence[Sequence[Step]],
    check: Callable[[int], None],
    fields: Mapping[str, Any] = NO_FIELDS,
    check_unfinished: Callable[[], None] = check_nothing,
) -> None:
    """Lets the driver run a batch of each sink again and again, kills it each time at the next of
    the `deaths`, and at last lets it finish.

    sinks: by name. deaths: for each kill the steps, of which every sink reaches one, or AMID_ROWS.
    check: takes the number of the topic's records, and checks that the tables have their rows.
    fields: further fields of the spec. check_unfinished: called after each death.
    """
    topics, folder = pipeline.topics, pipeline.folder
    (folder / "steps.py").write_text(_STEPS_FILE.format(queries=len(sinks)))
    spec = {
        "sources": {"events": events(topic)},
        "transforms": [{"name": "killed", "python": "steps.py:rows"}],
        "sinks": [{"from": "killed", "name": name, **sink} for name, sink in sinks.items()],
        **fields,
    }
    file, armed = folder / "p.yaml", folder / "armed"
    file.write_text(json.dumps(pipeline_document(spec)))
    # A task of each sink waits amid its rows, and one more is to make progress.
    command = ["run", "--pipeline", str(file), "--bootstrap", topics.address, "--master", f"local[{len(sinks) + 1},2]"]
    command += ["--checkpoint", pipeline.checkpoint, "--progress", str(folder / "killed.jsonl")]
    command += ["--secrets", str(pipeline.secrets)] if pipeline.secrets else []

    def run() -> None:
        if "://" in pipeline.checkpoint:
            # In a process of its own: a JVM keeps properties of its first pipeline's checkpoint.
            assert run_driver([], *command) == os.EX_OK, (folder / "killed.jsonl").read_text()[-500:]
        else:
            pipeline(spec)

    _write_keyed(pipeline, topic, range(ROWS))
    run()
    check(ROWS)
    _write_keyed(pipeline, topic, range(ROWS, 2 * ROWS))

    def run_until_killed(steps: Sequence[Step]) -> None:
        code = run_driver(steps, *command, queries=len(sinks))
        assert code == -signal.SIGKILL, (steps, (folder / "killed.jsonl").read_text()[-500:])
        check_unfinished()

    for steps in deaths:
        if steps != AMID_ROWS:
            run_until_killed(steps)
            continue
        armed.mkdir()
        run_until_killed(steps)
        assert len(list(armed.iterdir())) == len(sinks), "the driver has died before all sinks were amid their rows"
        shutil.rmtree(armed)
    _write_keyed(pipeline, topic, range(2 * ROWS, 3 * ROWS))
    run()
    check(3 * ROWS)


def _write_keyed(pipeline: Runner, topic: str, numbers: range) -> None:
    """Records of an id are in one partition, in their order."""
    for value in upserted(numbers):
        pipeline.topics.write(topic, value, key=str(value["id"]))
