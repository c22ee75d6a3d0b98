"""`python -m ottla_broker [--config FILE]… [--set key=value]… [--workers N]`: one broker, or N that
share the machine, until SIGTERM or SIGINT.

Exit codes: 0 after a clean stop; 2 when the broker cannot start, with the reason as one line on
standard error. One line on standard output says that it serves clients.
"""

# ruff: noqa: E402

import gc

# What imports create stays in memory: to look for garbage among it takes a tenth of a start.
gc.disable()

import argparse
import asyncio
import logging
import os
import signal
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, NamedTuple

import uvloop

# kio imports hypothesis where it is installed: seconds and megabytes that no broker needs.
sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]

from ottla_broker import busy_poll
from ottla_broker.broker import Broker
from ottla_broker.broker_bootstrap import FirstUsers
from ottla_broker.config import (
    CONSOLE_ENABLE,
    HTTP_LISTENER,
    HTTP_SECURITY_LISTENER,
    OTEL_EXPORTER_OTLP_ENDPOINT,
    PRODUCE_SPIN_MAX_US,
    SCHEMA_REGISTRY_LISTENER,
    Config,
    Listener,
    SettingError,
)
from ottla_broker.config.server_properties import GivenSetting, resolve_references
from ottla_broker.dispatcher import answer_locally
from ottla_broker.garbage_collection import PauseLimit
from ottla_broker.hot_paths import log_hot_paths_build
from ottla_broker.listener_certificates import ListenError
from ottla_broker.log.meta_properties import LogDirError
from ottla_broker.log_format import LOG_FORMATS, add_process_fields, configure_logging, print_line
from ottla_broker.metadata.records import Endpoint
from ottla_broker.pause_monitor import PauseMonitor
from ottla_broker.runtime import Runtime, machine_boot_id
from ottla_broker.security.scram import SALT_BYTES, parse_add_scram
from ottla_broker.server import Server
from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.listener_tls import CLIENT_AUTH_NONE, CLIENT_AUTH_REQUESTED, TlsConfigError

gc.freeze()
gc.enable()

CANNOT_START: Final = 2
MAX_WORKERS: Final = 256


class StartError(Exception):
    """The reason why the broker cannot start, in one line."""


def main(arguments: Sequence[str] | None = None) -> int:
    started_s = time.monotonic()
    options = parse_arguments(arguments)
    configure_logging(options.log_format, options.log_level)
    log_hot_paths_build()
    try:
        config = Config.load(options.config, options.set)
        if options.workers is not None:
            run_workers(config, options, started_s)
            return 0
        for note in config.notes:
            print_line(f"ottla broker: {note}", sys.stderr, level=logging.WARNING)
        first_users = read_first_users(options.add_scram)
        while uvloop.run(run_broker(config, started_s, first_users)):
            started_s = time.monotonic()
    except (StartError, SettingError, KafkaError, LogDirError, ListenError) as reason:
        for line in str(reason).splitlines():
            print_line(f"ottla broker: {line}", sys.stderr, level=logging.ERROR)
        return CANNOT_START
    return 0


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="ottla broker", description="Run a broker until SIGTERM or Ctrl-C.", formatter_class=make_help_formatter
    )
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="FILE",
        help="Read settings from a server.properties file. May be repeated; later files override earlier ones.",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="Set one setting, which overrides all files. May be repeated.",
    )
    parser.add_argument(
        "--add-scram",
        action="append",
        default=[],
        metavar="MECHANISM=[name=NAME,password=PASSWORD]",
        help="Add a SCRAM user when the cluster starts for the first time, before clients are served. May be repeated; "
        "${env:NAME} in it is an environment variable.",
    )
    parser.add_argument(
        "--workers",
        type=parse_worker_count,
        metavar="N",
        help="Run N brokers, each a process with its own node.id, ports and directory next to those of the first, as "
        "one cluster that uses N cores of the machine.",
    )
    parser.add_argument(
        "--log-level",
        default="info",
        choices=["debug", "info", "warning", "error"],
        help="Log messages of this level and above. Default: info.",
    )
    parser.add_argument(
        "--log-format",
        default="text",
        choices=LOG_FORMATS,
        help="Format of log lines: text, or json for one JSON object per line, with the fields of the request. "
        "Default: text.",
    )
    return parser.parse_args(arguments)


def make_help_formatter(prog: str) -> argparse.HelpFormatter:
    """A formatter as wide as the terminal. argparse creates one at each start, and would import
    shutil to find the width: half a MiB.
    """
    try:
        width = int(os.environ.get("COLUMNS") or os.get_terminal_size().columns)
    except (OSError, ValueError):
        width = 80
    return argparse.HelpFormatter(prog, width=width - 2)


def parse_worker_count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MAX_WORKERS):
        raise argparse.ArgumentTypeError(f"{text} is not a number of workers; allowed: 1 to {MAX_WORKERS}")
    return int(text)


def run_workers(config: Config, options: argparse.Namespace, started_s: float) -> None:
    """Runs the brokers of `--workers` until SIGTERM or SIGINT. Raises StartError, SettingError."""
    from ottla_broker.workers import workers  # a single broker needs none of it
    from ottla_broker.workers.worker_process import WorkerFailed

    try:
        uvloop.run(workers.run_workers(config, options, started_s))
    except WorkerFailed as reason:
        raise StartError(str(reason)) from None


def read_first_users(options: Sequence[str]) -> FirstUsers:
    """The SCRAM users of `--add-scram`. Raises StartError, SettingError."""
    users: FirstUsers = {}
    for option in options:
        text = resolve_references(GivenSetting("--add-scram", option, "--add-scram")).text
        try:
            name, mechanism, credential = parse_add_scram(text, os.urandom(SALT_BYTES))
        except ValueError as reason:
            raise StartError(str(reason)) from None
        users.setdefault(name, {})[mechanism] = credential
    return users


async def run_broker(config: Config, started_s: float, first_users: FirstUsers) -> bool:
    """Binds, starts, serves until a signal, and stops. Returns True if a recovery requires that the
    broker is started again.

    Sockets are bound first, so that a port in use is reported before any file is changed. Other
    brokers are served while this one starts, clients once it is ready. Raises StartError,
    SettingError, ListenError, LogDirError and KafkaError, each with a sentence for users.
    """
    runtime = Runtime(boot_id=machine_boot_id)
    broker = Broker(config, answer_locally, runtime=runtime, first_users=first_users)
    add_process_fields(node=broker.node_id)
    tracer = make_tracer(broker)
    server = Server(broker, busy_poll=make_busy_poll(config), sample_trace=None if tracer is None else tracer.sample)
    close_http: Callable[[], Awaitable[None]] | None = None
    registry: StartedRegistry | None = None
    restart_watch: asyncio.Task[None] | None = None
    pause_limit = PauseLimit(broker.partitions)
    pause_monitor = PauseMonitor()
    stop = asyncio.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signal_number, stop.set)
    try:
        advertised = server.bind()
        registry = await start_registry(broker, server, advertised)
        close_http = await start_http(broker, server, None if registry is None else registry.registry)
        if tracer is not None:
            tracer.start()
        await server.serve()
        endpoints = {
            name: Endpoint(at.host, at.port, config.security_protocol(name)) for name, at in advertised.items()
        }
        if registry is not None:
            endpoints |= registry.endpoints
        restart_watch = asyncio.create_task(_stop_when_restart_is_ordered(broker, stop))
        if not await completes_before(stop, broker.start(endpoints)):
            return broker.restart_ordered.is_set()
        pause_limit.start()
        pause_monitor.start()
        addresses = ", ".join(map(str, server.bound_listeners))
        took_ms = (time.monotonic() - started_s) * 1000
        print_line(f"ottla broker {broker.node_id} ready on {addresses} in {took_ms:.0f} ms")
        await stop.wait()
        if not broker.restart_ordered.is_set():
            await broker.controlled_shutdown()
        return broker.restart_ordered.is_set()
    finally:
        pause_monitor.stop()
        pause_limit.stop()
        if restart_watch is not None:
            restart_watch.cancel()
        if registry is not None:
            await registry.registry.close()
        await server.close()
        await broker.stop()
        if close_http is not None:
            await close_http()
        if tracer is not None:
            await tracer.close()


async def _stop_when_restart_is_ordered(broker: Broker, stop: asyncio.Event) -> None:
    await broker.restart_ordered.wait()
    stop.set()


async def completes_before(stop: asyncio.Event, start: Coroutine[Any, Any, None]) -> bool:
    """False if `stop` was set first: a start that waits for other brokers is cancelled. Raises what
    `start` raises.
    """
    starting, stopping = asyncio.ensure_future(start), asyncio.ensure_future(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait({starting})
        return False
    starting.result()
    return True


async def start_http(broker: Broker, server: Server, registry: Any) -> Callable[[], Awaitable[None]] | None:
    """Serves health and metrics on `http.listener`, also before the broker is ready, and the
    console where it is enabled. Returns a function that closes the server; None without
    `http.listener`. Raises StartError, SettingError.

    `registry`: a LazyRegistry, which is not imported here; None without a schema registry.
    """
    address = broker.config(HTTP_LISTENER)
    if address is None:
        if broker.config(CONSOLE_ENABLE):
            raise StartError("console.enable=true needs http.listener, the address that serves the console")
        return None
    from ottla_broker.http.server import HttpServer  # aiohttp would be most of a broker's start-up time

    console = make_console(broker, server, registry)
    http = HttpServer(broker, server, () if console is None else console.routes)
    try:
        client_auth = CLIENT_AUTH_NONE if console is None else console.client_auth
        await http.start(address, find_http_tls(broker.config, server, client_auth))
    except OSError as error:
        raise StartError(f"http.listener={address} cannot be bound: {error.strerror or error}") from error
    if console is None:
        return http.close
    console.start()

    async def close() -> None:
        await http.close()
        await console.close()

    return close


def find_http_tls(config: Config, server: Server, client_auth: str) -> ssl.SSLContext | None:
    """TLS with the certificates of `http.security.listener`; None if it is not set. Raises
    StartError if it is not a listener with TLS, or if its certificates cannot be used.
    """
    listener = config(HTTP_SECURITY_LISTENER)
    if listener is None:
        return None
    if listener not in server.certificates.contexts:
        tls_listeners = ", ".join(server.certificates.contexts) or "there is none"
        raise StartError(
            f"http.security.listener={listener} is not a listener with TLS; listeners with TLS: {tls_listeners}"
        )
    try:
        return server.certificates.make_context(listener, client_auth=client_auth)
    except TlsConfigError as reason:
        raise StartError(f"http.security.listener={listener}: {reason}") from None


class ConsoleParts(NamedTuple):
    """The parts of the console that `start_http` uses. `routes`: aiohttp's, which is not imported
    here. `client_auth`: a value of `ssl.client.auth`, whether browsers may present certificates;
    probes of health never have to.
    """

    routes: Sequence[Any]
    client_auth: str
    start: Callable[[], None]
    close: Callable[[], Awaitable[None]]


def make_console(broker: Broker, server: Server, registry: Any) -> ConsoleParts | None:
    """None without `console.enable`: the console's modules take start-up time and memory. Raises
    StartError, SettingError.
    """
    if not broker.config(CONSOLE_ENABLE):
        return None
    try:
        from ottla_broker.console.console import Console
    except ImportError as reason:
        raise StartError(f"console.enable=true needs pip install 'ottla[console]': {reason}") from None
    console = Console(broker, server, registry)
    client_auth = CLIENT_AUTH_REQUESTED if console.wants_certificates else CLIENT_AUTH_NONE
    return ConsoleParts(console.routes(), client_auth, console.start, console.close)


class StartedRegistry(NamedTuple):
    """`endpoints`: where other brokers forward requests for the registry. `registry`: a
    LazyRegistry, which is not imported here.
    """

    endpoints: dict[str, Endpoint]
    registry: Any


async def start_registry(broker: Broker, server: Server, advertised: Mapping[str, Listener]) -> StartedRegistry | None:
    """Serves the schema registry on `schema.registry.listener`; None if it is not set. Raises
    StartError.
    """
    config = broker.config
    address = config(SCHEMA_REGISTRY_LISTENER)
    if address is None:
        return None
    try:  # a broker without a registry needs none of it
        from ottla_broker.registry.endpoint import ENDPOINT
        from ottla_broker.registry.lazy_registry import LazyRegistry
    except ImportError as reason:
        raise StartError(f"schema.registry.listener needs pip install 'ottla[registry]': {reason}") from None
    registry = LazyRegistry(broker)
    try:
        endpoint = await registry.start(address, advertised[config.inter_broker_listener].host, server.certificates)
    except OSError as error:
        raise StartError(f"schema.registry.listener={address} cannot be bound: {error.strerror or error}") from error
    except TlsConfigError as reason:
        raise StartError(f"schema.registry.listener={address}: {reason}") from None
    return StartedRegistry({ENDPOINT: endpoint}, registry)


def make_tracer(broker: Broker) -> Any:
    """A Tracer, which is not imported here; None where nothing is traced. Raises StartError."""
    if broker.config(OTEL_EXPORTER_OTLP_ENDPOINT) is None:
        return None
    try:  # OpenTelemetry's messages and aiohttp take megabytes and start-up time
        from ottla_broker.tracing.tracer import Tracer
    except ImportError as reason:
        raise StartError(f"otel.exporter.otlp.endpoint needs pip install 'ottla[telemetry]': {reason}") from None
    return Tracer(broker)


def make_busy_poll(config: Config) -> busy_poll.BusyPoll | None:
    max_us = config(PRODUCE_SPIN_MAX_US)
    if not max_us or not busy_poll.is_affordable():
        return None
    return busy_poll.BusyPoll(asyncio.get_running_loop().call_soon, max_us)


if __name__ == "__main__":
    sys.exit(main())
