"""One pipeline as a local Spark process: started, watched through its progress events, started again when it falls.

The runner is a program of its own (`python -m ottla_spark run`), so that brokers and this command need no Java and no PySpark. It appends
a JSON object to progress.jsonl for every change of its state and every batch (`ottla_spark.progress` says which fields it has).
"""

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from ottla_operator.local.documents import Document
from ottla_operator.local.keeper import AGAIN, Keeper
from ottla_operator.local.live_view import LiveView, PipelineRow, State
from ottla_operator.plan.backoff import PIPELINE_RESTARTS
from ottla_operator.resources.common import parse_duration_ms
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline

POLL_S = 0.2
BAD_PIPELINE, NOT_INSTALLED = 2, 3


def missing() -> str | None:
    """What is not there that pipelines need; None when all is."""
    if find_spec("pyspark") is None:
        return "pipelines need PySpark: pip install 'ottla[spark]'"
    if find_spec("ottla_spark") is None:
        return "pipelines need the package ottla_spark, which is not installed"
    if java() is None:
        home = os.environ.get("JAVA_HOME")
        where = (
            f"JAVA_HOME is {home}, where there is no bin/java" if home else "there is none on the PATH or in JAVA_HOME"
        )
        return f"pipelines need Java 17 or newer, and {where} (brokers need none)"
    return None


def java() -> str | None:
    """Path of the java command, as Spark finds it."""
    if home := os.environ.get("JAVA_HOME"):
        found = Path(home) / "bin" / "java"
        return str(found) if found.exists() else None
    return shutil.which("java")


@dataclass(slots=True)
class PipelineRun:
    """`document`: the resource as it is written; the pipeline's relative paths start from its folder."""

    resource: Pipeline
    document: Document
    folder: Path
    bootstrap: str
    board: LiveView
    hash: str = field(init=False)
    """Another hash means that the pipeline has to be started again: its spec, its Python steps, its folder or the first broker's address has changed. It
    finds the other brokers by itself."""
    keeper: Keeper = field(init=False)
    _read: int = 0
    _error: str = ""
    _said: str = ""

    def __post_init__(self) -> None:
        self.hash = self._hash()
        self.keeper = Keeper(
            folder=self.folder,
            command=self._command(),
            hash=self.hash,
            tell=self._tell,
            is_ready=lambda _: self._has_started(),
            environment={"OTTLA_BOOTSTRAP": self.bootstrap},
            hopeless=(BAD_PIPELINE, NOT_INSTALLED),
            done=(0,),
            grace_s=self._grace_s(),
            pace=PIPELINE_RESTARTS,
        )

    @property
    def row(self) -> PipelineRow:
        key = (self.resource.spec.cluster_ref.name, self.resource.name)
        return self.board.pipelines.setdefault(key, PipelineRow(*key))

    @property
    def file(self) -> Path:
        return self.document.file.resolve()

    @property
    def progress(self) -> Path:
        return self.folder / "progress.jsonl"

    async def run(self) -> None:
        """Until it is stopped, finished or hopeless."""
        if self.resource.spec.state == "suspended":
            self.row.state = State.suspended
            return
        if (reason := missing()) is not None:
            self.row.state, self.row.note = State.waiting, reason
            self.board.say(f"pipeline {self.resource.name} is not started: {reason}", "warn")
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        watching = asyncio.create_task(self._watch())
        try:
            await self.keeper.run()
            self._take_in()
        finally:
            watching.cancel()

    async def stop(self) -> bool:
        return await self.keeper.stop()

    def _hash(self) -> str:
        told = json.dumps([self.document.data["spec"], str(self.file), self.bootstrap.split(",")[0]], sort_keys=True)
        made = hashlib.sha256(told.encode())
        for step in self.resource.spec.transforms or ():
            if step.python:
                with contextlib.suppress(OSError):  # the runner says that it is not there
                    made.update((self.file.parent / step.python.partition(":")[0]).read_bytes())
        return made.hexdigest()[:12]

    def _command(self) -> list[str]:
        return [
            sys.executable, "-m", "ottla_spark", "run",
            "--pipeline", str(self.file),
            "--name", self.resource.name,
            "--bootstrap", self.bootstrap,
            "--progress", str(self.progress),
            "--checkpoint", str(self._checkpoint()),
        ]  # fmt: skip

    def _checkpoint(self) -> str | Path:
        checkpoint = self.resource.spec.checkpoint
        if checkpoint and checkpoint.path:
            return checkpoint.path if "://" in checkpoint.path else self.file.parent / checkpoint.path
        return self.folder / "checkpoint"

    def _grace_s(self) -> float:
        """The runner's own deadline, and some time to close Spark."""
        stop = self.resource.spec.stop
        return parse_duration_ms((stop and stop.graceful) or "30s") / 1000 + 15.0

    def _tell(self, state: State, note: str, pid: int | None) -> None:
        row = self.row
        if state is State.starting and pid is None:
            self.progress.unlink(missing_ok=True)
            self._read, self._error = 0, ""
        if state is State.ready:
            if row.state is State.waiting:
                self.board.say(f"pipeline {self.resource.name} was still running (pid {pid}): taken over", "info")
            state = State.running
        if state in (State.failed, State.retrying):
            self._take_in()
            why, again, when = note.partition(AGAIN)
            why = self._error or why  # what the runner reports is clearer than the last line it prints
            note = why + again + when
            if why != self._said:
                self._said = why
                self.board.say(
                    f"{self._where(why)}pipeline {self.resource.name}: {note} (see {self.folder / 'output.log'})", "bad"
                )
            row.rows_per_second = None
        row.state, row.note = state, note

    def _where(self, why: str) -> str:
        """Where the field stands that a sentence begins with."""
        field_named = self.document.field_named(why)
        return "" if field_named is None else f"{self.document.where(field_named)}: "

    def _has_started(self) -> bool:
        self._take_in()
        return self.row.state is State.running

    async def _watch(self) -> None:
        while True:
            self._take_in()
            await asyncio.sleep(POLL_S)

    def _take_in(self) -> None:
        """Reads the events that came since the last time."""
        try:
            with self.progress.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._read:  # it has begun anew, having grown large
                    self._read = 0
                file.seek(self._read)
                new = file.read()
        except FileNotFoundError:
            return
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            self._event(json.loads(line))

    def _event(self, told: dict[str, Json]) -> None:
        row = self.row
        if told.get("state") == "running" and row.state in (State.starting, State.waiting, State.retrying):
            row.state, row.note = State.running, ""
        if "error" in told:
            self._error = str(told["error"])
        if "batch" in told:
            row.rows_per_second = told.get("processedRowsPerSecond")
            row.rows_in += told.get("rows", 0)
            row.rows_out += told.get("written", 0)
            lag = told.get("lag") or {}
            row.lag_records, row.lag_seconds = lag.get("records"), lag.get("seconds")
            if told.get("written"):
                self.board.first("first pipeline row")
