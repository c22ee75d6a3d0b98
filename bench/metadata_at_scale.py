"""`python -m bench.metadata_at_scale [--brokers N] [--partitions N]`: what a large cluster's metadata cost one broker and the controller.

The plans and images are the broker's own, with nothing around them: no network, no disk. Times are processor time of one core, so that other
load hardly matters. What follows from the figures is in docs/scale.md.
"""

import argparse
import asyncio
import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
from kio.schema.types import TopicName
from rich.console import Console
from rich.table import Table

from ottla_broker.api.metadata import metadata
from ottla_broker.metadata import broker_plans
from ottla_broker.metadata.election import TopicElectionRules
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.placement import UsableBroker, assign_replicas
from ottla_broker.metadata.records import (
    BrokerRegistrationChangeRecord,
    Endpoint,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    decode_record,
    encode_record,
)
from ottla_broker.wire.codec import write_response
from tests.unit.api.brokers import SmallBroker, context

T = TypeVar("T")

IN_A_TOPIC = 100
REPLICAS = 3
RACKS = 3
METADATA_API, METADATA_VERSION = 3, 13
RULES = TopicElectionRules(min_insync=2, allow_unclean=False)
MIB = 2**20


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.metadata_at_scale", description=__doc__)
    parser.add_argument("--brokers", type=int, default=300)
    parser.add_argument("--partitions", type=int, default=1_000_000)
    options = parser.parse_args()
    table = Table(box=None, title=f"{options.brokers} brokers, {options.partitions} partitions of {REPLICAS} replicas")
    for heading in ("what", "figure", "unit"):
        table.add_column(heading, justify="left" if heading != "figure" else "right")
    for what, figure, unit in measured(options.brokers, options.partitions):
        table.add_row(what, f"{figure:,.4g}" if figure < 10_000 else f"{figure:,.0f}", unit)
    Console(width=120).print(table)


def measured(brokers: int, partitions: int) -> Iterable[tuple[str, float, str]]:
    before = resident()
    records, placing_s = timed(lambda: cluster(brokers, partitions))
    yield "placing every partition", placing_s, "s"
    image = MetadataImage()
    _, applying_s = timed(lambda: image.apply_records(enumerate(records)))
    yield "applying the records", applying_s, "s"
    yield "memory of the image", (resident() - before) / MIB, "MiB"
    _, counting_s = timed(lambda: image.replica_index)
    yield "a new controller counts what lies where", counting_s, "s"
    yield "memory with that", (resident() - before) / MIB, "MiB"
    kept, listing_s = timed(lambda: image.to_records(1))
    yield "listing a snapshot (nothing else runs meanwhile)", listing_s, "s"
    written, encoding_s = timed(lambda: [encode_record(record) for record in kept])
    yield "encoding it (in another thread)", encoding_s, "s"
    yield "its size", sum(map(len, written)) / MIB, "MiB"
    _, decoding_s = timed(lambda: MetadataImage().apply_records(enumerate(map(decode_record, written))))
    yield "starting from it", decoding_s, "s"
    lost, fencing_s = timed(lambda: broker_plans.plan_fencing(image, 1, lambda _: RULES))
    yield "a broker dies: the plan", fencing_s, "s"
    yield "  partitions that change", len(lost), ""
    change, encoding_s = timed(lambda: [encode_record(record) for record in lost])
    yield "  its records", sum(map(len, change)) / MIB, "MiB"
    yield "  encoding them", encoding_s, "s"
    _, taking_s = timed(lambda: image.apply_records(enumerate(map(decode_record, change), image.end_offset)))
    yield "  each broker reads and applies them", taking_s, "s"
    for topics in (1, 10):
        size, answering_s = timed(lambda topics=topics: answered(image, topics))  # type: ignore[misc]
        yield f"a client asks for {topics * IN_A_TOPIC} partitions", answering_s * 1000, "ms"
        yield "  answer", size / 1024, "KiB"


def cluster(brokers: int, partitions: int) -> list[MetadataRecord]:
    """The records of a cluster in which everything is well."""
    ids = random.Random(1)
    directories = {broker: UUID(int=ids.getrandbits(128)) for broker in range(1, brokers + 1)}
    places = [UsableBroker(broker, f"rack-{broker % RACKS}") for broker in directories]
    records: list[MetadataRecord] = []
    for at in places:
        here = {"PLAINTEXT": Endpoint(f"broker-{at.broker}.brokers.events.svc.cluster.local", 9092)}
        came = RegisterBrokerRecord(at.broker, UUID(int=ids.getrandbits(128)), here, at.rack, (directories[at.broker],), None, at.broker)  # fmt: skip
        records += [came, BrokerRegistrationChangeRecord(at.broker, at.broker, fenced=False)]
    for number in range(partitions // IN_A_TOPIC):
        topic = UUID(int=ids.getrandbits(128))
        records.append(TopicRecord(f"events.of-team-{number % 100}.kind-{number}", topic))
        start = ids.randrange(brokers)
        for index, replicas in enumerate(assign_replicas(IN_A_TOPIC, REPLICAS, places, start=start, shift=number)):
            held_in = tuple(directories[broker] for broker in replicas)
            records.append(PartitionRecord(topic, index, replicas, replicas, replicas[0], directories=held_in))
    return records


def answered(image: MetadataImage, topics: int) -> int:
    """The bytes of a Metadata answer."""

    async def ask() -> int:
        broker = SmallBroker(Path("/nowhere"))
        broker.image = image
        asked = tuple(MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in list(image.topics)[:topics])
        found = await metadata(
            context(broker, METADATA_VERSION), MetadataRequest(topics=asked, include_topic_authorized_operations=False)
        )
        return len(write_response(METADATA_API, METADATA_VERSION, 1, found))

    return asyncio.run(ask())


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """What it gives, and the seconds of processor time that it took."""
    began = time.process_time()
    done = work()
    return done, time.process_time() - began


def resident() -> int:
    """Bytes of this process that are in memory."""
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in line) * 1024  # fmt: skip


if __name__ == "__main__":
    main()
