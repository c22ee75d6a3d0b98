"""Many producers that write to a machine with two cores: to two workers of `ottla broker --workers
2` and, in other turns, to one Apache Kafka broker, which uses both cores by itself.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bench.load_size import LoadSize
from bench.one_broker import RunBroker, is_any_selected
from bench.workers import PARTITIONS, Target, run_workers, send_to, targets_of
from tests.brokers import run_ottla_broker
from tests.clients import librdkafka as rd

CONNECTIONS = (500, 2000)  # of both load programs together
PROGRAMS = 2


def measure_two_workers(side: RunBroker, selected: Sequence[str], load_size: LoadSize) -> dict[str, float]:
    found: dict[str, float] = {}
    for connections in CONNECTIONS:
        name = f"two-workers-{connections}-"
        if is_any_selected(selected, name):
            with _targets(side) as targets:
                results = send_to(targets, connections // PROGRAMS, load_size.many_warm_s, load_size.many_s)
            found |= {
                f"{name}rate": sum(it.per_s for it in results),
                f"{name}p50": max(it.p50 for it in results),
                f"{name}p99": max(it.p99 for it in results),
            }
    return found


@contextmanager
def _targets(side: RunBroker) -> Iterator[list[Target]]:
    """What each load program sends to: a worker, or the only broker."""
    if side is run_ottla_broker:
        with run_workers(PROGRAMS) as command:
            yield targets_of(command)
    else:
        with side(test_settings=False) as broker:
            rd.create_topic(broker.bootstrap, "many", PARTITIONS)
            yield [Target(broker.port, broker.pid, "many")] * PROGRAMS
