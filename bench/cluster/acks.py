"""`bench/acks.c` as a process: a steady stream, a flood, or the times of acknowledgements."""

import json
import shlex
import signal
import subprocess
import threading
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

from bench import programs


def measure_flood(bootstrap: str, topic: str, partitions: int, size: int, records: int) -> float:
    """Acknowledged records per second of a producer that sends as fast as it can."""
    words = ["flood", bootstrap, topic, str(partitions), str(size), str(records)]
    result = json.loads(programs.run_program([programs.compile_program("acks"), *words]))
    return float(result["records"] / result["seconds"])


def measure_steady_latency(
    bootstrap: str, topic: str, partitions: int, size: int, per_s: int, seconds: float
) -> dict[str, float]:
    """p50, p99, p999 and max of the acknowledgement latency in seconds, with the other values that
    `acks.c` prints.

    librdkafka's `linger.ms` is set to 0, because its default of 5 ms would hide the brokers'
    latency.
    """
    words = ["steady", bootstrap, topic, str(partitions), str(size), str(per_s), str(seconds), "linger.ms=0"]
    result: dict[str, float] = json.loads(programs.run_program([programs.compile_program("acks"), *words]))
    return result


@dataclass
class AckTimes:
    """Times at which acknowledgements arrived, on the clock of `time.monotonic`. `failed`: rejected
    records, 0 until the producer has ended.
    """

    times: list[float] = field(default_factory=list)
    failed: int = 0

    def longest_gap_s(self, since: float, until: float) -> float:
        """The longest time between two successive acknowledgements that ends after `since` and
        begins before `until`, in seconds; 0 if there are not two.
        """
        first, last = max(bisect_left(self.times, since) - 1, 0), bisect_left(self.times, until)
        return max((after - before for before, after in pairwise(self.times[first : last + 1])), default=0.0)

    def has_acks_after(self, moment: float) -> bool:
        return bool(self.times) and self.times[-1] > moment


@contextmanager
def record_ack_times(bootstrap: str, topic: str, per_s: int, *settings: str) -> Iterator[AckTimes]:
    """Runs a producer of single records to partition 0 inside the block. Raises RuntimeError if it
    exits early.
    """
    command = [programs.compile_program("acks"), "watch", bootstrap, topic, "1", "100", str(per_s), *settings]
    programs.command_log.append(shlex.join(command) + " &")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    ack_times = AckTimes()

    def follow() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                ack_times.failed = json.loads(line)["failed"]
            else:
                ack_times.times.append(float(line))

    reader = threading.Thread(target=follow, daemon=True)
    reader.start()
    try:
        yield ack_times
        if process.poll() is not None:
            raise RuntimeError(f"{shlex.join(command)} exited early with code {process.returncode}")
        process.send_signal(signal.SIGTERM)
        process.wait(programs.PROGRAM_TIMEOUT_S)
    finally:
        process.kill()
        process.wait()
        reader.join()
