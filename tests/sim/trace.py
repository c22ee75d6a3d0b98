"""The trace of a run: lines with time, host and event."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from tests.sim.processes import current

DRIVER = "*"


class Trace:
    """Collects the lines of a run. `on_line` receives each line when it is added."""

    def __init__(self, now_s: Callable[[], float], on_line: Callable[[str], None] | None = None) -> None:
        self.lines: list[str] = []
        self.problems: list[str] = []
        self._now_s = now_s
        self._on_line = on_line
        self._handler: _Handler | None = None

    def add_line(self, what: str, host: str | None = None) -> None:
        if host is None:
            process = current()
            host = process.host if process else DRIVER
        line = f"{self._now_s():10.4f} {host:<10} {what}"
        self.lines.append(line)
        if self._on_line is not None:
            self._on_line(line)

    def record_problem(self, what: str) -> None:
        """Records an event that no fault may cause."""
        self.problems.append(what)
        self.add_line(f"PROBLEM: {what}")

    def start_capturing_logs(self, level: int) -> None:
        """Adds the broker's log records from this level on to the trace."""
        self._handler = _Handler(self)
        root = logging.getLogger("ottla_broker")
        root.addHandler(self._handler)
        root.setLevel(level)
        root.propagate = False

    def stop_capturing_logs(self) -> None:
        root = logging.getLogger("ottla_broker")
        if self._handler is not None:
            root.removeHandler(self._handler)
        root.setLevel(logging.NOTSET)
        root.propagate = True

    def handle_loop_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The loop's exception handler. An exception that no code retrieved is a bug of the
        program, unless its process is dead.
        """
        reason = context.get("exception")
        process = current()
        if process is None or process.alive:
            self.record_problem(
                f"{context.get('message')}: {reason!r} {context.get('future') or context.get('handle') or ''}"
            )


class _Handler(logging.Handler):
    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        if record.exc_info and record.levelno >= logging.ERROR:
            self._trace.record_problem(text)
        else:
            self._trace.add_line(f"{record.levelname.lower()}: {text}")
