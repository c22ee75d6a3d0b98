"""How far a broker is from the floor: a loop in C (`floor.c`) that receives, checks and writes the
same Produce requests.
"""

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import plain_requests, programs
from bench.load_size import LoadSize
from bench.one_broker import RunBroker
from tests.clients import librdkafka as rd

TOPIC, PARTITIONS = "floor", 12
SMALL = (50, 100)  # connections, bytes of a record
LARGE = (4, 1_000_000)


@dataclass(frozen=True)
class _FloorProcess:
    port: int
    pid: int


@contextmanager
def run_floor() -> Iterator[_FloorProcess]:
    """`floor.c` as a process."""
    batch = plain_requests.encode_batch(b"")
    batch_offset = len(plain_requests.produce_request(TOPIC, batch)) - len(batch)
    with tempfile.TemporaryDirectory() as folder:
        command = [programs.compile_program("floor"), str(Path(folder) / "floor.log"), str(batch_offset)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(plain_requests.produce_response(TOPIC))
            process.stdin.close()
            yield _FloorProcess(int(process.stdout.readline()), process.pid)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def measure_floor(run_broker: RunBroker, selected: Sequence[str], load_size: LoadSize) -> dict[str, float]:
    """The broker's rate in percent of the loop's, and its processor time per request as a multiple
    of the loop's. Each load is measured on the broker, then on the loop.
    """
    with run_broker(test_settings=False) as broker, run_floor() as floor:
        rd.create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        found: dict[str, float] = {}
        for name, (connections, size) in (("small", SMALL), ("large", LARGE)):
            broker_result, loop_result = (
                programs.measure_many_producers(
                    port, pid, TOPIC, PARTITIONS, connections, load_size.many_warm_s, load_size.many_s, size
                )
                for port, pid in ((broker.port, broker.pid), (floor.port, floor.pid))
            )
            found[f"floor-{name}-rate"] = 100 * broker_result.per_s / loop_result.per_s
            found[f"floor-{name}-cpu"] = broker_result.broker_cpu_us / loop_result.broker_cpu_us
        return found
