"""Many consumers of one partition: deliveries per second, their latency and the broker's processor
time.
"""

from collections.abc import Sequence

from bench import programs
from bench.load_size import LoadSize
from bench.one_broker import RunBroker
from tests.clients import librdkafka as rd

CONSUMERS, PER_S = 500, 1000
TOPIC = "many-consumers"


def measure_many_consumers(side: RunBroker, selected: Sequence[str], load_size: LoadSize) -> dict[str, float]:
    with side(test_settings=False) as broker:
        rd.create_topic(broker.bootstrap, TOPIC)
        took = programs.measure_many_consumers(
            broker.port,
            broker.pid,
            TOPIC,
            CONSUMERS,
            PER_S,
            load_size.many_warm_s,
            load_size.many_s,
        )
    values = {"rate": took.per_s, "p50": took.p50, "p99": took.p99, "cpu": took.broker_cpu_us}
    return {f"{TOPIC}-{name}": value for name, value in values.items()}
