"""Many consumers of one topic, and a consumer group of 200 members: deliveries per second, their
latency and the broker's processor time; of the group also the time in which it starts.
"""

from collections.abc import Sequence

from bench import programs
from bench.load_size import LoadSize
from bench.one_broker import RunBroker, is_any_selected
from tests.clients import librdkafka as rd

CONSUMERS, PER_S = 500, 1000
TOPIC = "many-consumers"
MEMBERS = 200
GROUP_TOPIC = "group-of-200"


def measure_many_consumers(run_broker: RunBroker, selected: Sequence[str], load_size: LoadSize) -> dict[str, float]:
    found: dict[str, float] = {}
    warm_s, measured_s = load_size.many_warm_s, load_size.many_s
    with run_broker(test_settings=False) as broker:
        if is_any_selected(selected, TOPIC):
            rd.create_topic(broker.bootstrap, TOPIC)
            took = programs.measure_many_consumers(broker.port, broker.pid, TOPIC, CONSUMERS, PER_S, warm_s, measured_s)
            found |= {f"{TOPIC}-rate": took.per_s, **_latencies(TOPIC, took)}
        if is_any_selected(selected, GROUP_TOPIC):
            rd.create_topic(broker.bootstrap, GROUP_TOPIC, MEMBERS)
            start_s, took = programs.measure_group(
                broker.bootstrap, broker.pid, GROUP_TOPIC, MEMBERS, MEMBERS, PER_S, warm_s, measured_s
            )
            found |= {f"{GROUP_TOPIC}-start": start_s, **_latencies(GROUP_TOPIC, took)}
    return found


def _latencies(line: str, took: programs.ManyClientsResult) -> dict[str, float]:
    return {f"{line}-p50": took.p50, f"{line}-p99": took.p99, f"{line}-cpu": took.broker_cpu_us}
