"""Pipelines as local Spark processes, observed through their progress events.

The runner is a program of its own (`python -m ottla_spark run`), so that brokers and this command
need neither Java nor PySpark. It appends a JSON object to progress.jsonl for every change of its
state and every batch; `ottla_spark.progress` lists their fields.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ottla_operator.local.documents import Document
from ottla_operator.local.home import Home
from ottla_operator.local.live_view import LiveView, PipelineRow, State
from ottla_operator.local.supervisor import ProcessStatus, Supervisor
from ottla_operator.local.user_files import write_user_secret
from ottla_operator.plan.backoff import PIPELINE_RESTARTS
from ottla_operator.plan.conditions import Stalled
from ottla_operator.plan.observed_pods import PipelinePod
from ottla_operator.plan.pipeline.pods import termination_grace_s
from ottla_operator.plan.pipeline.status import (
    PERMANENT_EXIT_CODES,
    PipelineObservations,
    PipelineRun,
    RunnerStatus,
    evaluate_driver,
)
from ottla_operator.plan.source_credentials import ObservedSecret
from ottla_operator.reconcile.platform import Blocked
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline
from ottla_operator.resources.replacement import Comparison

POLL_S: Final = 0.2


def find_missing_prerequisite() -> str | None:
    """A prerequisite of pipelines that this machine lacks; None if it has all."""
    if find_spec("pyspark") is None:
        return "pipelines need PySpark: pip install 'ottla[spark]'"
    if find_spec("ottla_spark") is None:
        return "pipelines need the package ottla_spark, which is not installed"
    if find_java() is None:
        home = os.environ.get("JAVA_HOME")
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is none on PATH or in JAVA_HOME"
        return f"pipelines need Java 17 or newer, and {where} (brokers need none)"
    return None


def find_java() -> str | None:
    """Path of the java command that Spark uses; None if it is missing."""
    if home := os.environ.get("JAVA_HOME"):
        java = Path(home) / "bin" / "java"
        return str(java) if java.exists() else None
    return shutil.which("java")


@dataclass(frozen=True, slots=True)
class ProcessConnection:
    """A driver's connection to brokers. `login`: the folder of the User that it logs in as; None
    without a login. `digest`: changes when it has to log in again. `registry`: URL of the schema
    registry, empty without one.
    """

    bootstrap: str
    login: Path | None = None
    digest: str = ""
    registry: str = ""


class PipelineProcess:
    """One pipeline's driver. `document`: the resource as written; its relative paths start from the
    file's folder. `hash`: when it changes, the driver has to be restarted, because its spec
    (except `replaces`), a Python step, the path of its file, its login, the schema registry's
    address or the first broker's has changed; the driver discovers the other brokers.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        document: Document,
        folder: Path,
        connection: ProcessConnection,
        view: LiveView,
        on_change: Callable[[], None],
    ) -> None:
        self.pipeline = pipeline
        self.document = document
        self.folder = folder
        self.connection = connection
        self.view = view
        self.runner: RunnerStatus | None = None
        self.is_released = False
        self.hash = self._hash()
        self._on_change = on_change
        self._read_bytes = 0
        self._reading: asyncio.Task[None] | None = None
        self.supervisor = Supervisor(
            folder=folder,
            command=self._command(),
            hash=self.hash,
            on_status=self._update_status,
            is_ready=lambda _: self._is_running(),
            environment={"OTTLA_BOOTSTRAP": connection.bootstrap},
            permanent_codes=PERMANENT_EXIT_CODES,
            success_codes=(0,),
            grace_s=termination_grace_s(pipeline),
            delays=PIPELINE_RESTARTS,
        )

    @property
    def row(self) -> PipelineRow:
        key = (self.pipeline.spec.cluster_ref.name, self.pipeline.name)
        return self.view.pipelines.setdefault(key, PipelineRow(*key))

    @property
    def progress(self) -> Path:
        return self.folder / "progress.jsonl"

    @property
    def secrets(self) -> Path:
        """Folder of the Secrets of sinks and object stores."""
        return self.folder / "secrets"

    @property
    def _start_file(self) -> Path:
        return (self.folder / "released").resolve()

    def start(self) -> None:
        """Starts the driver. It starts Spark, and waits for `release` before it reads topics."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._start_file.unlink(missing_ok=True)
        self.supervisor.start()
        self._reading = asyncio.create_task(self._read_periodically())

    def release(self) -> None:
        """Lets the pipeline begin, now and after each restart of the driver."""
        self.is_released = True
        self._start_file.touch()

    async def stop(self) -> bool:
        """Stops the driver, and returns when it has exited. False if it had to be killed."""
        if self._reading is not None:
            self._reading.cancel()
        return await self.supervisor.stop()

    def observe(self) -> PipelinePod:
        status = self.supervisor.status
        error = (self.runner and self.runner.error) or status.reason
        return PipelinePod(
            name=f"process {status.pid}",
            is_ready=status.state is State.ready,
            is_terminating=False,
            phase="Running" if status.pid else "Pending",
            settings=self.hash,
            address="",
            restarts=status.exits,
            exit_code=status.exit_code,
            last_message=f"{error} (see {self.folder / 'output.log'})" if error else "",
            problem="",
        )

    def _hash(self) -> str:
        file, address = str(self.document.file.resolve()), self.connection.bootstrap.split(",")[0]
        login = [it for it in (self.connection.digest, self.connection.registry) if it]
        spec = {name: value for name, value in self.document.data["spec"].items() if name != "replaces"}
        content = [spec, file, address, *login]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
        for reference in self.pipeline.spec.python_references.values():
            with contextlib.suppress(OSError):  # the runner reports a missing file
                digest.update((self.document.file.resolve().parent / reference.rpartition(":")[0]).read_bytes())
        return digest.hexdigest()[:12]

    def _command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "ottla_spark", "run"),
            *("--pipeline", str(self.document.file.resolve())),
            *("--name", self.pipeline.name),
            *("--bootstrap", self.connection.bootstrap),
            *(("--login", str(self.connection.login)) if self.connection.login else ()),
            *(("--registry", self.connection.registry) if self.connection.registry else ()),
            *(("--secrets", str(self.secrets.resolve())) if self.pipeline.secrets else ()),
            *("--progress", str(self.progress)),
            *("--start-when", str(self._start_file)),
            *("--checkpoint", str(self._checkpoint())),
        ]

    def _checkpoint(self) -> str | Path:
        checkpoint = self.pipeline.spec.checkpoint
        if checkpoint and checkpoint.path:
            is_url = "://" in checkpoint.path
            return checkpoint.path if is_url else self.document.file.resolve().parent / checkpoint.path
        if checkpoint and checkpoint.s3:
            return checkpoint.s3.url(self.pipeline.name)
        return self.folder / "checkpoint"

    def _update_status(self, status: ProcessStatus) -> None:
        if status.state is State.starting and status.pid is None:
            self.progress.unlink(missing_ok=True)
            self._read_bytes, self.runner = 0, None
        if status.is_adopted:
            self.view.say(f"pipeline {self.pipeline.name} was still running (pid {status.pid}): adopted", "info")
        if status.state in (State.failed, State.retrying):
            self.read_progress()
            self.row.rows_per_second = None
        if self.is_released:  # before, the Pipeline may be unknown to the controller
            self._on_change()

    def _is_running(self) -> bool:
        self.read_progress()
        return self.runner is not None and self.runner.state == "running"

    async def _read_periodically(self) -> None:
        while True:
            self.read_progress()
            await asyncio.sleep(POLL_S)

    def read_progress(self) -> None:
        """Reads the events since the last time."""
        try:
            with self.progress.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._read_bytes:  # the runner has begun a new file
                    self._read_bytes = 0
                file.seek(self._read_bytes)
                new = file.read()
        except FileNotFoundError:
            return
        complete = new[: new.rfind(b"\n") + 1]
        self._read_bytes += len(complete)
        for line in complete.splitlines():
            self._apply_event(json.loads(line))

    def _apply_event(self, event: dict[str, Json]) -> None:
        lag = event.get("lag") or {}
        previous = self.runner or RunnerStatus("starting")
        self.runner = RunnerStatus(
            event.get("state") or previous.state,
            event.get("error") or previous.error,
            event.get("at") if "batch" in event else previous.last_progress,
            input_rows_per_second=event.get("inputRowsPerSecond"),
            lag_records=lag.get("records"),
            lag_seconds=lag.get("seconds"),
            spark_ui=str(event.get("sparkUi") or previous.spark_ui),
            has_caught_up=bool(event.get("caughtUp", previous.has_caught_up)),
            catch_up_seconds_left=event.get("catchUpSecondsLeft"),
            comparisons=tuple(map(Comparison.parse, event.get("comparisons") or ())) or previous.comparisons,
        )
        if "batch" in event:
            row = self.row
            row.rows_per_second = event.get("processedRowsPerSecond")
            row.rows_in += event.get("rows", 0)
            row.rows_out += event.get("written", 0)
            row.lag_records, row.lag_seconds = lag.get("records"), lag.get("seconds")
            if event.get("written"):
                self.view.reach("first pipeline row")


@dataclass(slots=True)
class ProcessLaunch:
    """See `reconcile.platform.Launch`."""

    processes: "PipelineProcesses"
    desired: PipelineProcess
    is_suspended: bool

    @property
    def application(self) -> str:
        return "Process"

    @property
    def starts_driver(self) -> bool:
        return not self.is_suspended and (self._current is None or not self._current.is_released)

    @property
    def _current(self) -> PipelineProcess | None:
        """The driver that runs the desired pipeline; None if none or an earlier version runs."""
        found = self.processes.by_name.get(self.desired.pipeline.name)
        return found if found is not None and found.hash == self.desired.hash else None

    async def apply(self) -> PipelineRun:
        if (self.is_suspended or self._current is None) and self.desired.pipeline.name in self.processes.by_name:
            await self.processes.stop_driver(self.desired.pipeline.name)
        if not self.is_suspended and self._current is None:
            self.processes.by_name[self.desired.pipeline.name] = self.desired
            self.desired.start()
        driver = self._current
        if driver is not None:
            driver.release()
        return evaluate_driver(
            PipelineObservations(
                settings=self.desired.hash,
                is_suspended=self.is_suspended,
                drivers=[driver.observe()] if driver is not None else [],
                runner=driver.runner if driver is not None and driver.supervisor.ready.is_set() else None,
                is_finished=driver is not None and driver.supervisor.status.state is State.finished,
            )
        )


@dataclass(slots=True)
class PipelineProcesses:
    """Drivers by the Pipeline's name. `on_change`: called with the name when a driver's state
    changes.
    """

    home: Home
    view: LiveView
    on_change: Callable[[str], None]
    by_name: dict[str, PipelineProcess] = field(default_factory=dict)

    def plan(
        self,
        pipeline: Pipeline,
        document: Document,
        connection: ProcessConnection,
        secrets: Mapping[str, ObservedSecret],
    ) -> ProcessLaunch:
        """See `Platform.plan_launch`. `secrets`: those of the files, by name. A driver reads the
        Secrets of JDBC sinks for each batch, and those of catalogs and object stores when it
        starts.
        """
        is_suspended = pipeline.spec.state == "suspended"
        if not is_suspended and (missing := find_missing_prerequisite()) is not None:
            raise Blocked(Stalled("PrerequisiteMissing", f"the driver is not started: {missing}"))
        folder = self.home.pipeline(pipeline.spec.cluster_ref.name, pipeline.name)
        on_change = self._notifier(pipeline.name)
        process = PipelineProcess(pipeline, document, folder, connection, self.view, on_change)
        for name in pipeline.secrets:
            if name not in secrets:
                message = f"a sink or object store needs Secret {name}, which is in none of the files"
                raise Blocked(Stalled("CredentialsUnusable", message))
            write_user_secret(process.secrets / name, secrets[name].values)
        return ProcessLaunch(self, process, is_suspended)

    def start_spark(self, pipeline: Pipeline, document: Document, connection: ProcessConnection) -> None:
        """Starts the driver of a Pipeline whose brokers and topics may not exist yet: Spark takes
        as long to start as they do. A later launch of the same Pipeline takes the driver over, and
        one of a changed Pipeline stops it. Does nothing if a driver runs, the Pipeline is suspended
        or a prerequisite is missing.
        """
        if self.by_name or pipeline.spec.state == "suspended" or find_missing_prerequisite() is not None:
            return
        launch = self.plan(pipeline, document, connection, {})
        self.by_name[pipeline.name] = launch.desired
        launch.desired.start()

    async def stop_driver(self, name: str) -> None:
        """Stops a driver, if there is one, and returns when it has exited."""
        if (driver := self.by_name.get(name)) is not None:
            await driver.stop()
            self.by_name.pop(name, None)

    async def stop(self) -> bool:
        """Stops all drivers. False if some had to be killed."""
        return all(await asyncio.gather(*(it.stop() for it in self.by_name.values())))

    def kill(self) -> None:
        for driver in self.by_name.values():
            driver.supervisor.kill()

    def _notifier(self, name: str) -> Callable[[], None]:
        return lambda: self.on_change(name)
