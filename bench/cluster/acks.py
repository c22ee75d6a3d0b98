"""`bench/acks.c` as a process: a steady stream, a flood, or a watch that tells when acknowledgements came."""

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


def flood(bootstrap: str, topic: str, partitions: int, size: int, records: int) -> float:
    """Acknowledged records per second."""
    words = ["flood", bootstrap, topic, str(partitions), str(size), str(records)]
    said = json.loads(programs.run([programs.compiled("acks"), *words]))
    return float(said["records"] / said["seconds"])


def steady(bootstrap: str, topic: str, partitions: int, size: int, per_s: int, seconds: float) -> dict[str, float]:
    """p50, p99, p999 and max of the acknowledgements' latency, in seconds. librdkafka would keep each record for its
    `linger.ms`: that is set to 0, because it is the brokers that are asked."""
    words = ["steady", bootstrap, topic, str(partitions), str(size), str(per_s), str(seconds), "linger.ms=0"]
    said: dict[str, float] = json.loads(programs.run([programs.compiled("acks"), *words]))
    return said


@dataclass
class Watch:
    """When each acknowledgement came, on the clock of `time.monotonic`."""

    times: list[float] = field(default_factory=list)
    failed: int = 0

    def longest_gap_s(self, since: float, until: float) -> float:
        """The longest time without an acknowledgement between two moments, both with acks around them."""
        first, last = max(bisect_left(self.times, since) - 1, 0), bisect_left(self.times, until)
        return max((after - before for before, after in pairwise(self.times[first : last + 1])), default=0.0)

    def acked_since(self, moment: float) -> bool:
        return bool(self.times) and self.times[-1] > moment


@contextmanager
def watch(bootstrap: str, topic: str, per_s: int, *settings: str) -> Iterator[Watch]:
    """A producer of one record after the other to partition 0, as long as this lasts. RuntimeError when it ends by itself."""
    command = [programs.compiled("acks"), "watch", bootstrap, topic, "1", "100", str(per_s), *settings]
    programs.commands.append(shlex.join(command) + " &")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    seen = Watch()

    def follow() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                seen.failed = json.loads(line)["failed"]
            else:
                seen.times.append(float(line))

    reader = threading.Thread(target=follow, daemon=True)
    reader.start()
    try:
        yield seen
        if process.poll() is not None:
            raise RuntimeError(f"{shlex.join(command)} ended by itself, with {process.returncode}")
        process.send_signal(signal.SIGTERM)
        process.wait(programs.PATIENCE_S)
    finally:
        process.kill()
        process.wait()
        reader.join()
