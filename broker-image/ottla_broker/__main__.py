"""`python -m ottla_broker [--config FILE]… [--set key=value]…`: one broker, until SIGTERM or SIGINT.

Exit codes: 0 after a clean stop; 2 when it cannot start, with one line on standard error that says why. One line on standard output says
that it serves.
"""

# ruff: noqa: E402

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import uvloop

# Where hypothesis is installed, kio imports it, for its users' tests: seconds and megabytes that no broker needs.
sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]

from ottla_broker import busy_poll
from ottla_broker.broker import Broker
from ottla_broker.config import HTTP_LISTENER, PRODUCE_SPIN_MAX_US, Config, SettingError
from ottla_broker.dispatcher import answer_locally
from ottla_broker.log.log_dir import LogDirError
from ottla_broker.metadata.records import Endpoint
from ottla_broker.metadata.register import RegisterError
from ottla_broker.metadata.register.stores import open_register
from ottla_broker.runtime import Runtime, machine_boot_id
from ottla_broker.server import ListenError, Server
from ottla_broker.wire.errors import KafkaError

if TYPE_CHECKING:
    from ottla_broker.http.server import HttpServer

CANNOT_START = 2


class StartError(Exception):
    """Why the broker cannot start, in one line."""


def main(arguments: Sequence[str] | None = None) -> int:
    started = time.monotonic()
    options = parse(arguments)
    logging.basicConfig(
        level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    try:
        config = Config.load(options.config, options.set)
        for note in config.notes:
            print(f"ottla broker: {note}", file=sys.stderr)
        uvloop.run(serve(config, started))
    except (StartError, SettingError, KafkaError, LogDirError, ListenError, RegisterError) as reason:
        for line in str(reason).splitlines():
            print(f"ottla broker: {line}", file=sys.stderr)
        return CANNOT_START
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ottla broker", description="One Ottla broker, until SIGTERM or Ctrl-C.")
    parser.add_argument(
        "--config", action="append", default=[], metavar="FILE", help="a server.properties file; later ones win"
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="one setting, over all files")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return parser.parse_args(arguments)


async def serve(config: Config, started: float) -> None:
    """Binds, starts, serves until a signal, stops. Sockets are bound first, so that a port in use is known before any file is touched; other
    brokers are answered while this one starts, clients when it is ready."""
    runtime = Runtime(boot_id=machine_boot_id)
    broker = Broker(config, open_register(config.register, runtime, os.environ), answer_locally, runtime=runtime)
    server = Server(broker, busy_poll=busy_poll_of(config))
    http: HttpServer | None = None
    stop = asyncio.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signal_number, stop.set)
    try:
        reached = server.bind()
        http = await serve_http(broker, server)
        await server.serve()
        endpoints = {name: Endpoint(at.host, at.port, config.security_protocol(name)) for name, at in reached.items()}
        if not await done_before(stop, broker.start(endpoints)):
            return
        gc.freeze()  # what a start leaves in memory stays there: no later collection has to look at it and make a record wait
        addresses = ", ".join(map(str, server.bound_listeners))
        took_ms = (time.monotonic() - started) * 1000
        print(f"ottla broker {broker.node_id} ready on {addresses} in {took_ms:.0f} ms", flush=True)
        await stop.wait()
        await broker.controlled_shutdown()
    finally:
        await server.close()
        await broker.stop()
        if http is not None:
            await http.close()


async def done_before(stop: asyncio.Event, start: Coroutine[Any, Any, None]) -> bool:
    """Whether a start came to its end; one that waits for other brokers may be broken off at any time. Raises what it raises."""
    starting, stopping = asyncio.ensure_future(start), asyncio.ensure_future(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait({starting})
        return False
    starting.result()
    return True


async def serve_http(broker: Broker, server: Server) -> "HttpServer | None":
    """Health and metrics, where `http.listener` wants them: from before the broker is up, so that its start can be watched."""
    address = broker.config(HTTP_LISTENER)
    if address is None:
        return None
    from ottla_broker.http.server import HttpServer  # aiohttp would be most of a broker's start

    http = HttpServer(broker, server)
    try:
        await http.start(address)
    except OSError as error:
        raise StartError(f"http.listener={address} cannot be bound: {error.strerror or error}") from error
    return http


def busy_poll_of(config: Config) -> busy_poll.BusyPoll | None:
    patience_us = config(PRODUCE_SPIN_MAX_US)
    if not patience_us or not busy_poll.is_affordable():
        return None
    return busy_poll.BusyPoll(asyncio.get_running_loop().call_soon, patience_us)


if __name__ == "__main__":
    sys.exit(main())
