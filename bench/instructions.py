"""`python -m bench.instructions [--record RELEASE]`: how many instructions of the interpreter a
small request takes, beside those of the last release.

The count does not depend on the machine or on its load, so continuous integration prints it.
It leaves out what C functions do, such as system calls and checksums; `python -m bench.hot_paths`
measures the processor time of the same requests. Compiled modules have no such instructions: the
source is counted. --record stores the counts, with the name of the release that has them.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final

import uvloop

from bench import plain_requests
from bench.hot_paths import CONNECTIONS, TOPIC, Client, create_topic, small_requests
from ottla_broker.hot_paths import hot_paths_build
from ottla_broker.server import Server
from tests.unit.broker_without_sockets import run_broker

TURNS: Final = 5
RECORDED: Final = Path(__file__).with_name("instructions.json")
PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"


class InstructionCounter:
    """Counts the instructions of this thread in a `with` block, and a few that end the block."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> "InstructionCounter":
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.count += event == "opcode"
        return self._trace


async def count_all() -> dict[str, int]:
    """Instructions for each request, by its kind and the number of connections that send one in a
    turn of the event loop.
    """
    found: dict[str, int] = {}
    record = plain_requests.encode_batch(bytes(100))
    with tempfile.TemporaryDirectory() as folder:
        async with run_broker(Path(folder)) as broker:
            server = Server(broker)
            producer, *_ = await create_topic(server, record)
            kinds = small_requests(producer, broker.partitions.leader(TOPIC, 0).log)
            for name, request in kinds.items():
                for connections in (1, CONNECTIONS):
                    clients = [Client(server, request()) for _ in range(connections)]
                    found[f"{name}-{connections}"] = await count_one(clients)
    return found


async def count_one(clients: list[Client]) -> int:
    """Instructions for one request: the fewest of several turns, because some have other work of
    the broker.
    """
    await send_all(clients)  # the first request of a connection is read in full
    counts = []
    for _ in range(TURNS):
        counter = InstructionCounter()
        with counter:
            await send_all(clients)
        counts.append(counter.count)
    return round(min(counts) / len(clients))


async def send_all(clients: list[Client]) -> None:
    for client in clients:
        client.send()
    await asyncio.sleep(0)


def compare(found: Mapping[str, int], recorded: Mapping[str, Any]) -> list[str]:
    """Lines of a table. Counts of another version of Python are not comparable."""
    lines = [f"instructions of Python {PYTHON} for a request; {recorded['release']} with Python {recorded['python']}"]
    for name, count in found.items():
        before = recorded["instructions"].get(name)
        ratio = f"{before:6}  {count / before:.2f} ×" if before and recorded["python"] == PYTHON else ""
        lines.append(f"  {name:18}{count:6}  {ratio}".rstrip())
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.instructions")
    parser.add_argument("--record", metavar="RELEASE", help="store the counts as those of this release")
    release = parser.parse_args().record
    if hot_paths_build() != "pure":
        raise SystemExit("compiled modules have no instructions of the interpreter; run the source")
    found = uvloop.run(count_all())
    if release is not None:
        RECORDED.write_text(json.dumps({"release": release, "python": PYTHON, "instructions": found}, indent=2) + "\n")
    print("\n".join(compare(found, json.loads(RECORDED.read_text()))))


if __name__ == "__main__":
    main()
