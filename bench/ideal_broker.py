"""`python -m bench.ideal_broker [--records N] [--size BYTES] [--turns N]`: the highest rate at
which librdkafka can consume.

It reads from Ottla, from Apache Kafka, and from a broker that has no work to do. Its responses are
prepared and point to the log's memory-mapped pages. One thread per connection waits for a request
in recv() and sends the response with one system call. Where this broker is no faster than Ottla,
the client is the bottleneck, and no broker could be faster. Requests other than these fetches are
forwarded to the Ottla broker whose log it reads.
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
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.fetch_request import read_fetch_request
from ottla_broker.wire.fetch_response import FetchResponsePartition, write_fetch_response
from ottla_broker.wire.request_header import read_request_header
from tests.brokers import BrokerProcess, run_apache_kafka, run_ottla_broker
from tests.clients import librdkafka as rd
from tests.ports import free_port

FETCH = 1
TOPIC = "read"
WARM_UP_READS = 3  # unmeasured, for the just-in-time compiler
MAX_RESPONSE_BYTES = 1 << 20  # librdkafka's max.partition.fetch.bytes

Response = tuple[bytearray, memoryview]


def build_responses(folder: Path, version: int) -> dict[int, Response]:
    """Responses by fetch offset: whole batches of at most `MAX_RESPONSE_BYTES`, or one larger
    batch.
    """
    pieces: list[tuple[int, memoryview]] = []
    for path in sorted(folder.glob("*.log")):
        if not path.stat().st_size:
            continue
        with path.open("rb") as file:
            pages = memoryview(mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ))
        start, first, stop = 0, -1, 0
        for at, header in iter_batches(pages):
            stop = at + header.size
            if at > start and stop - start > MAX_RESPONSE_BYTES:
                pieces.append((first, pages[start:at]))
                start, first = at, -1
            first = header.base_offset if first < 0 else first
            end = header.next_offset
        pieces.append((first, pages[start:stop]))
    return {first: _build_response(version, end, records) for first, records in pieces}


def _build_response(version: int, end: int, records: memoryview) -> Response:
    head, *rest = write_fetch_response(
        version, 0, [FetchResponsePartition(TOPIC, 0, ErrorCode.none, end, end, 0, records)]
    )
    assert isinstance(head, bytearray) and rest == [records], "records must be the last buffer, not copied"
    return head, records


def serve_connection(client: socket.socket, broker_port: int, folder: Path) -> None:
    """Serves one connection until it closes. Forwards requests for which no response is prepared to
    `broker_port`.
    """
    responses: dict[int, Response] = {}
    with client, socket.create_connection(("127.0.0.1", broker_port)) as broker:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while (frame := _receive_frame(client)) is not None:
            header = read_request_header(frame)
            if header.api_key == FETCH:
                partitions = read_fetch_request(frame, header).partitions
                responses = responses or build_responses(folder, header.version)
                if partitions and (prepared := responses.get(partitions[0].offset)) is not None:
                    head, records = prepared
                    head[4:8] = frame[4:8]  # the correlation id
                    sent = client.sendmsg((head, records))
                    if sent < len(head) + len(records):
                        client.sendall(records[sent - len(head) :])
                    continue
            broker.sendall(struct.pack(">i", len(frame)) + frame)
            if (response := _receive_frame(broker)) is None:
                return
            client.sendall(struct.pack(">i", len(response)) + response)


def _receive_frame(sock: socket.socket) -> bytearray | None:
    """The next message without its size; None if the peer has closed the connection."""
    try:
        size = sock.recv(4, socket.MSG_WAITALL)
        frame = bytearray(sock.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL)) if len(size) == 4 else None
    except ConnectionError:
        return None
    return frame


def start_ideal_broker(broker: BrokerProcess, port: int) -> None:
    """Accepts connections on `port` as the ideal broker until the process exits.

    `broker` gets a listener that advertises this port.
    """
    forwarded_port = free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{broker.port},IDEAL://127.0.0.1:"
    broker.settings |= {
        "listeners": f"{listeners}{forwarded_port}",
        "advertised.listeners": f"{listeners}{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IDEAL:PLAINTEXT",
    }
    folder = broker.log_dir / f"{TOPIC}-0"
    server = socket.create_server(("127.0.0.1", port))

    def accept_clients() -> None:
        while True:
            client, _ = server.accept()
            threading.Thread(target=serve_connection, args=(client, forwarded_port, folder), daemon=True).start()

    threading.Thread(target=accept_clients, daemon=True).start()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ideal_broker", description=__doc__)
    parser.add_argument("--records", type=int, default=8_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a record")
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    for what, fact in machine.describe().items():
        console.print(f"[bold]{what}[/]: {fact}", highlight=False)
    with run_ottla_broker(start=False, test_settings=False) as ottla, run_apache_kafka(test_settings=False) as kafka:
        start_ideal_broker(ottla, port := free_port())
        ottla.start()
        where = {"Ottla": ottla.bootstrap, "ideal": f"127.0.0.1:{port}", "Apache Kafka": kafka.bootstrap}
        for broker in (ottla, kafka):
            rd.create_topic(broker.bootstrap, TOPIC)
            programs.produce(broker.bootstrap, TOPIC, options.records, options.size)
        os.sync()
        read: dict[str, list[programs.LoadResult]] = {name: [] for name in where}
        for _ in range(WARM_UP_READS + options.turns):
            for name, bootstrap in where.items():
                read[name].append(programs.consume(bootstrap, TOPIC, options.records))
    print_table(console, {name: loads[WARM_UP_READS:] for name, loads in read.items()})


def print_table(console: Console, read: Mapping[str, Sequence[programs.LoadResult]]) -> None:
    table = Table(
        title=f"librdkafka consuming in turns: min, median, max of {len(read['ideal'])}", title_justify="left"
    )
    for heading in ("broker", "MB/s", "ratio to Kafka", "client CPU s/s"):
        table.add_column(heading, justify="left" if heading == "broker" else "right")
    kafka = Spread.of([load.mb_per_s for load in read["Apache Kafka"]]).median
    for name, loads in read.items():
        rate = Spread.of([load.mb_per_s for load in loads])
        busy = Spread.of([load.client_cpu_s / load.seconds for load in loads])
        table.add_row(name, str(rate), f"{rate.median / kafka:.2f} ×", str(busy))
    console.print(table)


if __name__ == "__main__":
    main()
