"""The job `keys` of `bench.pipelines` in Kafka Streams: counts by key, with the library's operators
alone.

    python -m bench.kafka_streams --bootstrap HOST:PORT --folder FOLDER --rows ROWS

Prints a JSON line whenever the offsets of at least `BATCH_ROWS` more records are committed, and one
for the rest: their number and their time in ms. py4j, which PySpark includes, builds the
application in a JVM with default options.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from bench.pipeline_jobs import BATCH_ROWS, COUNTS, EVENTS
from tests.jars import QUIET, STREAMS, kafka_classpath
from tests.java_gateway import start_jvm

TEXT: Final = "org.apache.kafka.common.serialization.Serdes$StringSerde"
BYTES: Final = "org.apache.kafka.common.serialization.Serdes$ByteArraySerde"
COMMIT_INTERVAL_MS: Final = 200
POLL_S: Final = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rows", type=int, required=True)
    options = parser.parse_args()
    name = f"bench-{time.time_ns()}"
    properties = {
        "application.id": name,
        "bootstrap.servers": options.bootstrap,
        "state.dir": str(options.folder),
        "default.key.serde": TEXT,
        "default.value.serde": BYTES,
        "commit.interval.ms": str(COMMIT_INTERVAL_MS),
        "num.stream.threads": str(os.cpu_count()),
        "auto.offset.reset": "earliest",
    }
    with run_application(properties):
        for rows, seconds in committed_batches(options.bootstrap, name, options.rows):
            print(json.dumps({"rows": rows, "batchMs": seconds * 1000}), flush=True)


@contextmanager
def run_application(properties: Mapping[str, str]) -> Iterator[None]:
    """Runs the application of Kafka Streams while the block runs."""
    with start_jvm(kafka_classpath(coordinates=STREAMS), QUIET) as (gateway, _):
        streams: Any = gateway.jvm.org.apache.kafka.streams
        long_serde = gateway.jvm.org.apache.kafka.common.serialization.Serdes.Long()
        builder = streams.StreamsBuilder()
        counts = builder.stream(EVENTS).groupByKey().count()
        counts.toStream().to(COUNTS, streams.kstream.Produced.valueSerde(long_serde))
        java_properties = gateway.jvm.java.util.Properties()
        for key, value in properties.items():
            java_properties.put(key, value)
        application = streams.KafkaStreams(builder.build(), java_properties)
        application.start()
        try:
            yield
        finally:
            application.close()


def committed_batches(bootstrap: str, group: str, rows: int) -> Iterator[tuple[int, float]]:
    """Yields a batch whenever the group has committed at least `BATCH_ROWS` more records: their
    number, and the seconds since the batch before. The last batch is the rest: it ends when the
    group has committed `rows`.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    partitions = [TopicPartition(EVENTS, it) for it in consumer.list_topics(EVENTS, 20).topics[EVENTS].partitions]
    done, began = 0, time.monotonic()
    while done < rows:
        time.sleep(POLL_S)
        committed = sum(max(it.offset, 0) for it in consumer.committed(partitions, 20))
        if committed - done >= BATCH_ROWS or (committed > done and committed == rows):
            now = time.monotonic()
            yield committed - done, now - began
            done, began = committed, now
    consumer.close()


if __name__ == "__main__":
    main()
