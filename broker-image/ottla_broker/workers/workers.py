"""Runs all workers until SIGTERM or SIGINT. A second signal kills them.

The workers stop one after the other, each with a controlled shutdown, the first one last: it founds
the metadata log of a new cluster, and as long as it runs the others can hand their partitions over.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence

from ottla_broker.config import HTTP_LISTENER, Config, SettingError
from ottla_broker.config.server_properties import ALIASES
from ottla_broker.workers.worker_plan import WorkerPlan, plan_workers
from ottla_broker.workers.worker_process import WorkerFailed, WorkerProcess

logger = logging.getLogger(__name__)


async def run_workers(config: Config, options: argparse.Namespace, started_s: float) -> None:
    """`options`: of the command. `started_s`: when it was started, monotonic. Raises SettingError,
    WorkerFailed.
    """
    existing = {path: _list_directory(path) for path in config.log_dirs}
    plans = plan_workers(config, options.workers, existing)
    processes = [WorkerProcess(plan, broker_command(plan, options, founds=plan is plans[0])) for plan in plans]
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, _stop_or_kill, stop, processes)
    close_http = await _start_http(config, processes)
    running = [asyncio.create_task(it.run()) for it in processes]
    greeting = asyncio.create_task(_print_when_ready(processes, started_s))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({stopping, *running}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        greeting.cancel()
        for process in reversed(processes):
            await process.stop()
        results = await asyncio.gather(*running, return_exceptions=True)
        if close_http is not None:
            await close_http()
    for result in results:
        if isinstance(result, BaseException):
            raise result


def broker_command(plan: WorkerPlan, options: argparse.Namespace, *, founds: bool) -> list[str]:
    """The command line of one broker: the options of `ottla broker --workers`, with the worker's
    settings over them.
    """
    replaced = {override.partition("=")[0] for override in plan.overrides} | set(ALIASES)
    given = [text for text in options.set if text.partition("=")[0].strip() not in replaced]
    repeated = {
        "--config": options.config,
        "--set": [*given, *plan.overrides],
        "--add-scram": options.add_scram if founds else (),
    }
    arguments = [part for option, texts in repeated.items() for text in texts for part in (option, text)]
    log = ("--log-level", options.log_level, "--log-format", options.log_format)
    return [sys.executable, "-m", "ottla_broker", *log, *arguments]


def _list_directory(path: str) -> list[str]:
    try:
        return os.listdir(path)  # noqa: PTH208 (pathlib would add to the start-up time)
    except FileNotFoundError:
        return []
    except OSError as problem:
        raise SettingError([f"log.dirs={path}: {problem.strerror}"]) from None


def _stop_or_kill(stop: asyncio.Event, processes: Sequence[WorkerProcess]) -> None:
    if stop.is_set():
        for process in processes:
            process.kill()
    stop.set()


async def _start_http(config: Config, processes: list[WorkerProcess]) -> Callable[[], Awaitable[None]] | None:
    """Returns a function that closes the server; None without `http.listener`. Raises WorkerFailed
    when the port is taken.
    """
    address = config(HTTP_LISTENER)
    if address is None:
        return None
    from ottla_broker.workers.http_server import WorkersHttpServer  # aiohttp takes most of the start-up time

    server = WorkersHttpServer(processes)
    try:
        await server.start(address)
    except OSError as error:
        raise WorkerFailed(f"http.listener={address} cannot be bound: {error.strerror or error}") from None
    return server.close


async def _print_when_ready(processes: Sequence[WorkerProcess], started_s: float) -> None:
    for process in processes:
        await process.ready.wait()
    servers = ",".join(it.plan.address for it in processes)
    took_ms = (time.monotonic() - started_s) * 1000
    print(f"ottla broker: {len(processes)} workers ready on {servers} in {took_ms:.0f} ms", flush=True)
