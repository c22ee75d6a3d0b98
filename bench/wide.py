"""Many partitions of one topic at once, written and read."""

import re
from collections.abc import Sequence

from bench import programs
from bench.load_size import LoadSize
from bench.one_broker import RunBroker
from tests.clients import librdkafka as rd
from tests.jars import fetch_classpath, java_command

TOPIC, PARTITIONS, HUNDRED = "wide", 2000, 100
JAVA_TIMEOUT_MS = 60_000


def measure_wide(run_broker: RunBroker, selected: Sequence[str], load_size: LoadSize) -> dict[str, float]:
    """librdkafka fetches without sessions (KIP-227), Java's consumer with them."""
    with run_broker(test_settings=False) as broker:
        rd.create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        found: dict[str, float] = {}
        for records in (load_size.wide // 4, load_size.wide):  # the first one warms up
            found["wide-produce"] = programs.produce(
                broker.bootstrap, TOPIC, records, HUNDRED, partitions=PARTITIONS
            ).mb_per_s
        for name, read in (("wide-consume", _consume_mb_per_s), ("wide-consume-sessions", _consume_with_java_mb_per_s)):
            if name in selected:
                read(broker.bootstrap, load_size.wide)
                found[name] = read(broker.bootstrap, load_size.wide)
        return found


def _consume_mb_per_s(bootstrap: str, records: int) -> float:
    return programs.consume(bootstrap, TOPIC, records, partitions=PARTITIONS).mb_per_s


def _consume_with_java_mb_per_s(bootstrap: str, records: int) -> float:
    """MB (10⁶ bytes) of payload per second of fetching, from ConsumerPerformance's last column."""
    words = ["--bootstrap-server", bootstrap, "--topic", TOPIC, "--messages", str(records), "--hide-header"]
    words += ["--timeout", str(JAVA_TIMEOUT_MS)]
    main = "org.apache.kafka.tools.ConsumerPerformance"
    printed = programs.run_program(java_command(fetch_classpath(), main, *words, jvm=("-Xms512m", "-Xmx512m")))
    row = next(line for line in reversed(printed.splitlines()) if re.match(r"\d{4}-\d\d-\d\d ", line))
    return float(row.split(",")[-1]) * HUNDRED / 1e6
