"""Many consumers of one topic: deliveries per second, their latency and the broker's processor
time. A consumer group of 200 members: the time of its start, latency and processor time.
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
            result = programs.measure_many_consumers(
                broker.port, broker.pid, TOPIC, CONSUMERS, PER_S, warm_s, measured_s
            )
            found |= {f"{TOPIC}-rate": result.per_s, **_latencies_and_cpu(TOPIC, result)}
        if is_any_selected(selected, GROUP_TOPIC):
            rd.create_topic(broker.bootstrap, GROUP_TOPIC, MEMBERS)
            start_s, result = programs.measure_group(
                broker.bootstrap, broker.pid, GROUP_TOPIC, MEMBERS, MEMBERS, PER_S, warm_s, measured_s
            )
            found |= {f"{GROUP_TOPIC}-start": start_s, **_latencies_and_cpu(GROUP_TOPIC, result)}
    return found


def _latencies_and_cpu(line: str, result: programs.ManyClientsResult) -> dict[str, float]:
    return {f"{line}-p50": result.p50, f"{line}-p99": result.p99, f"{line}-cpu": result.broker_cpu_us}
