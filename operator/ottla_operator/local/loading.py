"""The load: a `load.py` beside the YAML (or a `load-NAME.py`, for the cluster of that name) prints records as JSON lines, and `ottla produce --lines - --resume` puts them into the topics.

A load that was broken off goes on exactly where it ended, because its lines come in the same order every time and each partition knows
how many it has, even if a topic was given more partitions meanwhile. A load that is done is remembered, with the script's hash and the ids of the topics, and not run again: not for a topic that is described
later either, because counting a partition's records tells nothing once partitions were added.
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
from typing import Any

from ottla_operator.local.live_view import LiveView, LoadRow, State

SCRIPT = "load.py"
NICE = 10
GRACE_S = 5.0


def script_of(cluster: str) -> str:
    """The script of this cluster alone, where several are described beside each other."""
    return f"load-{cluster}.py"


@dataclass(slots=True)
class Load:
    """`folder`: the cluster's folder below .ottla. `ids`: topic → id, of the cluster's described topics."""

    script: Path
    folder: Path
    bootstrap: str
    board: LiveView
    _group: int | None = None
    _over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def row(self) -> LoadRow:
        return self.board.loads.setdefault(str(self.script), LoadRow(str(self.script)))

    async def run(self, ids: Mapping[str, str]) -> None:
        """Loads, unless it is done already."""
        mark = {"script": hashlib.sha256(self.script.read_bytes()).hexdigest(), "topics": dict(sorted(ids.items()))}
        if is_loaded(self._done(), mark):
            self.row.state, self.row.note = State.finished, "was loaded before"
            return
        self.row.state = State.running
        try:
            code, last = await self._pipe()
        finally:
            self._over.set()
        if code == 0:
            self.row.state, self.row.note = State.finished, last
            self._marker.write_text(json.dumps(mark))
            self.board.say(f"{self.script}: {last}", "good")
        elif self._group is not None:
            self.row.state, self.row.note = State.failed, last or f"ended with exit code {code}"
            self.board.say(f"{self.script}: {self.row.note}", "bad")

    async def stop(self) -> None:
        """Breaks the load off and returns when it is gone; the next one goes on from there."""
        group, self._group = self._group, None
        if group is not None and not self._over.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGTERM)
            try:
                async with asyncio.timeout(GRACE_S):
                    await self._over.wait()
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)
                await self._over.wait()

    @property
    def _marker(self) -> Path:
        return self._file("loaded")

    def _file(self, what: str) -> Path:
        name = hashlib.sha256(str(self.script.resolve()).encode()).hexdigest()[:8]
        return self.folder / f"{what}-{name}.json"

    def _done(self) -> object:
        try:
            return json.loads(self._marker.read_text())
        except (FileNotFoundError, ValueError):
            return None

    async def _pipe(self) -> tuple[int, str]:
        """Runs script | ottla produce in a process group of their own. The worse exit code, and the last line said."""
        reader, writer = os.pipe()
        environment = {**os.environ, "OTTLA_BOOTSTRAP": self.bootstrap}
        try:
            sink = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "ottla_operator.cli", "produce", "--lines", "-", "--resume", "--partitions-file", str(self._file("partitions")),
                "--bootstrap", self.bootstrap,
                stdin=reader, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE, env=environment, process_group=0,
            )  # fmt: skip
            self._group = sink.pid
            source = await asyncio.create_subprocess_exec(
                sys.executable, str(self.script),
                stdin=asyncio.subprocess.DEVNULL, stdout=writer, stderr=asyncio.subprocess.PIPE, env=environment, process_group=sink.pid,
            )  # fmt: skip
        finally:
            os.close(writer)
            os.close(reader)
        for process in (sink, source):  # people wait for the first result, not for the last record
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
        said, problem, code, source_code = await asyncio.gather(
            self._follow(sink.stderr), self._follow(source.stderr), sink.wait(), source.wait()
        )
        return (code, said) if code or not source_code else (source_code, problem)

    async def _follow(self, stream: asyncio.StreamReader | None) -> str:
        """Shows the newest line; gives back the last."""
        last = ""
        assert stream is not None
        async for raw in stream:
            if line := raw.decode(errors="replace").strip():
                last = self.row.note = line
        return last


def is_loaded(done: object, wanted: Mapping[str, Any]) -> bool:
    """Whether the load that `done` remembers is the one that is wanted: the same script, and no topic made anew since."""
    if not isinstance(done, dict) or done.get("script") != wanted["script"]:
        return False
    before, now = done.get("topics", {}), wanted["topics"]
    return all(before[topic] == now[topic] for topic in before.keys() & now.keys())
