"""`python -m bench.failed_logins`: latency of one client while others fail to log in.

One client sends 100 produce requests of 100 B per second, each when it is due, and measures the
time until each response. Meanwhile other processes make connections that fail to log in, at a
steady rate, with the broker's default delay of failures. Every wait for the response counts from
the time at which the request was due, so that a delay counts for the requests behind it, too.
"""

import argparse
import asyncio
import multiprocessing
import time
from multiprocessing.sharedctypes import Synchronized
from typing import Final

from kio.schema.sasl_authenticate.v1.request import SaslAuthenticateRequest
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from rich.console import Console
from rich.table import Table

from bench.access import CORRELATION_ID, HOST, MODULES, PASSWORD, TOPIC, USER, login_of
from bench.plain_requests import encode_batch, produce_request, wait_for_first_ack
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.channel import open_channel
from ottla_broker.wire.codec import write_request
from tests.brokers import run_ottla_broker
from tests.ports import free_port

REQUESTS_PER_S: Final = 100
PROCESSES: Final = 2
MECHANISM: Final = "PLAIN"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.failed_logins", description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rates", type=int, nargs="+", default=[0, 200, 500, 1000], help="failed logins a second")
    options = parser.parse_args()
    table = Table(box=None)
    for heading in ("target /s", "failed /s", "p50 ms", "p99 ms", "max ms", "broker's CPU"):
        table.add_column(heading, justify="right")
    with run_ottla_broker(start=False) as broker:
        port = free_port()
        broker.settings |= {
            "listeners": f"PLAINTEXT://{HOST}:{broker.port},LOGIN://{HOST}:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": MECHANISM,
            "listener.name.login.plain.sasl.jaas.config": (
                f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
            ),
        }
        broker.start()
        wait_for_first_ack(broker.port, TOPIC, 30)
        for rate in options.rates:
            count = multiprocessing.Value("i", 0)
            attackers = [
                multiprocessing.Process(target=fail_logins, args=(port, rate / PROCESSES, options.seconds, count))
                for _ in range(PROCESSES if rate else 0)
            ]
            for it in attackers:
                it.start()
            cpu_s, began = broker.cpu_s(), time.perf_counter()
            waits = sorted(asyncio.run(measure_waits(port, options.seconds)))
            took_s = time.perf_counter() - began
            used = (broker.cpu_s() - cpu_s) / took_s
            for it in attackers:
                it.join()
            shown = (waits[len(waits) // 2], waits[len(waits) * 99 // 100], waits[-1])
            failed = count.value / options.seconds
            table.add_row(str(rate), f"{failed:.0f}", *(f"{it * 1000:.1f}" for it in shown), f"{used:.0%}")
    Console(width=100).print(table)


async def measure_waits(port: int, seconds: float) -> list[float]:
    """Seconds from when each request was due to its response."""
    channel = await open_channel(HOST, port, "bench", security=login_of(USER, PASSWORD, MECHANISM))
    request, waits, began = produce_request(TOPIC, encode_batch(bytes(100))), [], time.perf_counter()
    for number in range(int(seconds * REQUESTS_PER_S)):
        due = began + number / REQUESTS_PER_S
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await channel.send_frame(CORRELATION_ID, [request])
        waits.append(time.perf_counter() - due)
    channel.close()
    return waits


def fail_logins(port: int, rate: float, seconds: float, count: "Synchronized[int]") -> None:
    """Runs in a process of its own: begins `rate` logins a second that fail. Adds to `count` those
    that the broker has answered.
    """
    handshake = bytes(write_request(ApiKey.SASL_HANDSHAKE, 1, 1, "attacker", SaslHandshakeRequest(mechanism=MECHANISM)))
    token = SaslAuthenticateRequest(auth_bytes=b"\0nobody\0a wrong one")
    authenticate = bytes(write_request(ApiKey.SASL_AUTHENTICATE, 1, 2, "attacker", token))

    async def fail() -> None:
        try:
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(handshake)
            await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
            writer.write(authenticate)
            await reader.readexactly(4)
            writer.close()
        except (OSError, asyncio.IncompleteReadError):
            return  # the broker refuses more connections
        with count.get_lock():
            count.value += 1

    async def run() -> None:
        began, tasks = time.perf_counter(), set[asyncio.Task[None]]()
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            if time.perf_counter() > began + seconds:
                break
            task = asyncio.create_task(fail())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        for it in tuple(tasks):
            it.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())


if __name__ == "__main__":
    main()
