"""The load: a `load.py` beside the YAML (or `load-NAME.py`, for the cluster of that name) prints
records as JSON lines, and `ottla produce --lines - --resume` writes them to topics.

An interrupted load resumes exactly where it ended, because its lines come in the same order every
time and each partition knows how many it has, even if partitions were added meanwhile. A completed
load is remembered with the script's hash and the ids of the topics, and is not run again, not even
for topics that are described later: once partitions were added, the number of records in a
partition no longer tells which of its lines are written.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ottla_operator.local.home import replace_file
from ottla_operator.local.live_view import LiveView, LoadRow, State
from ottla_operator.local.load_limit import LoadLimit

SCRIPT: Final = "load.py"
NICENESS: Final = 10  # people wait for the first result, not for the last record
GRACE_S: Final = 20.0  # a script may have to stop programs that it has started


def cluster_script(cluster: str) -> str:
    """The script of this cluster alone, where several are described in one folder."""
    return f"load-{cluster}.py"


@dataclass(slots=True)
class LoadScript:
    """`folder`: the cluster's in .ottla. `command_config`: client properties with the login of
    `ottla up`; None where brokers have none. `limit`: limits its rate until `end_limit`; None
    for no limit.
    """

    script: Path
    folder: Path
    bootstrap: str
    view: LiveView
    command_config: Path | None = None
    limit: LoadLimit | None = None
    _process_group: int | None = None
    _processes: list[asyncio.subprocess.Process] = field(default_factory=list)

    @property
    def row(self) -> LoadRow:
        return self.view.loads.setdefault(str(self.script), LoadRow(str(self.script)))

    async def run(self, topic_ids: Mapping[str, str]) -> None:
        """Runs the load, unless it was completed before. `topic_ids`: ids of the cluster's
        described topics, by name.
        """
        current = {"script": hashlib.sha256(self.script.read_bytes()).hexdigest(), "topics": dict(topic_ids)}
        if is_loaded(self._read_marker(), current):
            self.row.state, self.row.note = State.finished, "was loaded before"
            return
        self.row.state = State.running
        if self.limit is not None:
            self.limit.write(self._limit_file)
            self.view.say(f"{self.script}: {self.limit}", "info")
        try:
            code, last_line = await self._run_processes()
        finally:
            self.end_limit()
        if code == 0:
            self.row.state, self.row.note = State.finished, last_line
            replace_file(self._file("loaded"), json.dumps(current, sort_keys=True))
            self.view.say(f"{self.script}: {last_line}", "success")
        elif self._process_group is not None:
            self.row.state, self.row.note = State.failed, last_line or f"exited with code {code}"
            self.view.say(f"{self.script}: {self.row.note}", "error")

    def end_limit(self) -> None:
        self._limit_file.unlink(missing_ok=True)

    async def stop(self) -> None:
        """Interrupts the load and returns when its processes have ended, also if the task that runs
        it was cancelled before.
        """
        group, self._process_group = self._process_group, None
        if group is None or all(it.returncode is not None for it in self._processes):
            return
        for number, timeout_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, None)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await asyncio.gather(*(it.wait() for it in self._processes))
                    return

    @property
    def _limit_file(self) -> Path:
        return self._file("limit")

    def _file(self, purpose: str) -> Path:
        name = hashlib.sha256(str(self.script.resolve()).encode()).hexdigest()[:8]
        return self.folder / f"{purpose}-{name}.json"

    def _read_marker(self) -> object:
        try:
            return json.loads(self._file("loaded").read_text())
        except (FileNotFoundError, ValueError):
            return None

    async def _run_processes(self) -> tuple[int, str]:
        """Runs `script | ottla produce` in its own process group. Returns the exit code and the
        last line of `ottla produce`; those of the script if only the script failed.
        """
        reader, writer = os.pipe()
        environment = {**os.environ, "OTTLA_BOOTSTRAP": self.bootstrap}
        if self.command_config is not None:
            environment["OTTLA_COMMAND_CONFIG"] = str(self.command_config)
        command = ("-m", "ottla_operator.cli", "produce", "--lines", "-", "--resume", "--bootstrap", self.bootstrap)
        limit = ("--limit-file", str(self._limit_file)) if self.limit is not None else ()
        produce = (*command, "--partitions-file", str(self._file("partitions")), *limit)
        pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        try:
            sink = await asyncio.create_subprocess_exec(
                sys.executable, *produce, stdin=reader, stdout=null, stderr=pipe, env=environment, process_group=0
            )
            self._process_group = sink.pid
            self._processes.append(sink)
            source = await asyncio.create_subprocess_exec(
                *(sys.executable, str(self.script)),
                stdin=null,
                stdout=writer,
                stderr=pipe,
                env=environment,
                process_group=sink.pid,
            )
            self._processes.append(source)
        finally:
            os.close(writer)
            os.close(reader)
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
        sink_line, source_line, sink_code, source_code = await asyncio.gather(
            self._show_lines(sink.stderr), self._show_lines(source.stderr), sink.wait(), source.wait()
        )
        return (sink_code, sink_line) if sink_code or not source_code else (source_code, source_line)

    async def _show_lines(self, stream: asyncio.StreamReader | None) -> str:
        """Shows each line as it comes. Returns the last."""
        last = ""
        assert stream is not None
        async for raw in stream:
            if line := raw.decode(errors="replace").strip():
                last = self.row.note = line
        return last


def is_loaded(completed: object, current: Mapping[str, Any]) -> bool:
    """True if the completed load was of the same script, and no topic was re-created since."""
    if not isinstance(completed, dict) or completed.get("script") != current["script"]:
        return False
    before, now = completed.get("topics", {}), current["topics"]
    return all(before[topic] == now[topic] for topic in before.keys() & now.keys())
