"""`python -m bench.ideal [--records N] [--size BYTES] [--turns N]`: what a consuming line could reach at most.

Beside Ottla and Apache Kafka, librdkafka reads here from a broker that has nothing left to do: every answer lies ready, over the log's pages in
memory, and is sent by a thread that waits in the kernel for the request and hands it the whole answer in one call. Where it is no faster than Ottla,
the client is what is measured, and no broker could be faster. Everything but these fetches is passed on to the Ottla broker whose log it reads.
"""

import argparse
import mmap
import os
import socket
import struct
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import machine, programs
from bench.report import Spread
from ottla_broker.wire.batch import iter_batches
from ottla_broker.wire.codec import read_request_header
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.fetch_request import read_fetch_request
from ottla_broker.wire.fetch_response import FetchResponsePartition, write_fetch_response
from tests.brokers import BrokerProcess, run_apache_kafka, run_ottla_broker
from tests.clients import librdkafka as rd
from tests.ports import free_port

FETCH = 1
TOPIC = "read"
WARM = 3  # readings before it counts, for the just-in-time compiler
MOST = 1 << 20  # bytes of one answer: max.partition.fetch.bytes of librdkafka

Answer = tuple[bytearray, memoryview]


def answers(folder: Path, version: int) -> dict[int, Answer]:
    """By offset: the answer to who asks from there on, as whole batches of at most `MOST` bytes (or one)."""
    pieces: list[tuple[int, memoryview]] = []
    for path in sorted(folder.glob("*.log")):
        if not path.stat().st_size:
            continue
        with path.open("rb") as file:
            pages = memoryview(mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ))
        start, first, stop = 0, -1, 0
        for at, header in iter_batches(pages):
            stop = at + header.size
            if at > start and stop - start > MOST:
                pieces.append((first, pages[start:at]))
                start, first = at, -1
            first = header.base_offset if first < 0 else first
            end = header.next_offset
        pieces.append((first, pages[start:stop]))
    return {first: _answer(version, end, records) for first, records in pieces}


def _answer(version: int, end: int, records: memoryview) -> Answer:
    head, *rest = write_fetch_response(
        version, 0, [FetchResponsePartition(TOPIC, 0, ErrorCode.none, end, end, 0, records)]
    )
    assert isinstance(head, bytearray) and rest == [records], "the records go out uncopied and last"
    return head, records


def serve(client: socket.socket, broker_port: int, folder: Path) -> None:
    """One connection, to its end."""
    ready: dict[int, Answer] = {}
    with client, socket.create_connection(("127.0.0.1", broker_port)) as broker:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while (frame := _frame(client)) is not None:
            header = read_request_header(frame)
            if header.api_key == FETCH:
                asked = read_fetch_request(frame, header).partitions
                ready = ready or answers(folder, header.version)
                if asked and (answer := ready.get(asked[0].offset)) is not None:
                    head, records = answer
                    head[4:8] = frame[4:8]  # the correlation id
                    sent = client.sendmsg((head, records))
                    if sent < len(head) + len(records):
                        client.sendall(records[sent - len(head) :])
                    continue
            broker.sendall(struct.pack(">i", len(frame)) + frame)
            if (told := _frame(broker)) is None:
                return
            client.sendall(struct.pack(">i", len(told)) + told)


def _frame(sock: socket.socket) -> bytearray | None:
    """The next message without its size; None when the other end has gone."""
    try:
        size = sock.recv(4, socket.MSG_WAITALL)
        frame = bytearray(sock.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL)) if len(size) == 4 else None
    except ConnectionError:
        return None
    return frame


def listen(broker: BrokerProcess, port: int) -> None:
    """Takes connections at `port` as the ideal broker, for as long as the process runs; `broker` is told to name that port to who comes by it."""
    passed = free_port()
    both = f"PLAINTEXT://127.0.0.1:{broker.port},READY://127.0.0.1:"
    broker.settings |= {
        "listeners": f"{both}{passed}",
        "advertised.listeners": f"{both}{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,READY:PLAINTEXT",
    }
    folder = broker.log_dir / f"{TOPIC}-0"
    server = socket.create_server(("127.0.0.1", port))

    def take() -> None:
        while True:
            client, _ = server.accept()
            threading.Thread(target=serve, args=(client, passed, folder), daemon=True).start()

    threading.Thread(target=take, daemon=True).start()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ideal", description=__doc__)
    parser.add_argument("--records", type=int, default=8_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a record")
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    for what, fact in machine.about().items():
        console.print(f"[bold]{what}[/]: {fact}", highlight=False)
    with run_ottla_broker(start=False, test_settings=False) as ottla, run_apache_kafka(test_settings=False) as kafka:
        listen(ottla, port := free_port())
        ottla.start()
        where = {"Ottla": ottla.bootstrap, "ideal": f"127.0.0.1:{port}", "Apache Kafka": kafka.bootstrap}
        for broker in (ottla, kafka):
            rd.create(broker.bootstrap, TOPIC)
            programs.produce(broker.bootstrap, TOPIC, options.records, options.size)
        os.sync()
        read: dict[str, list[programs.Load]] = {name: [] for name in where}
        for _ in range(WARM + options.turns):
            for name, bootstrap in where.items():
                read[name].append(programs.consume(bootstrap, TOPIC, options.records))
    show(console, {name: loads[WARM:] for name, loads in read.items()})


def show(console: Console, read: Mapping[str, Sequence[programs.Load]]) -> None:
    table = Table(title=f"librdkafka reads, by turns: min, median, max of {len(read['ideal'])}", title_justify="left")
    for heading in ("from", "MB/s", "of Kafka's", "the client's processor time per second"):
        table.add_column(heading, justify="left" if heading == "from" else "right")
    kafka = Spread.of([load.mb_per_s for load in read["Apache Kafka"]]).median
    for name, loads in read.items():
        rate = Spread.of([load.mb_per_s for load in loads])
        busy = Spread.of([load.client_cpu_s / load.seconds for load in loads])
        table.add_row(name, str(rate), f"{rate.median / kafka:.2f} ×", str(busy))
    console.print(table)


if __name__ == "__main__":
    main()
