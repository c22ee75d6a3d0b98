"""`python -m bench.metadata_at_scale [--brokers N] [--partitions N]`: what a large cluster's
metadata cost.

Runs the broker's own plans and images without network and disk. Times are processor time of one
core, so other load on the machine hardly matters. docs/scale.md says what follows from the figures.
"""

import argparse
import asyncio
import random
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
from kio.schema.types import TopicName
from rich.console import Console
from rich.table import Table

from ottla_broker.api.metadata import metadata
from ottla_broker.metadata import broker_plans
from ottla_broker.metadata.cells import divide_into_cells
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
from tests.unit.metadata.small_controller import SmallController

T = TypeVar("T")

PARTITIONS_PER_TOPIC = 100
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
    for heading in ("what", "value", "unit"):
        table.add_column(heading, justify="left" if heading != "value" else "right")
    for what, figure, unit in measure(options.brokers, options.partitions):
        table.add_row(what, f"{figure:,.4g}" if figure < 10_000 else f"{figure:,.0f}", unit)
    Console(width=120).print(table)


def measure(brokers: int, partitions: int) -> Iterable[tuple[str, float, str]]:
    before = resident_bytes()
    records, placing_s = measure_cpu_s(lambda: build_cluster_records(brokers, partitions))
    yield "placement of all partitions", placing_s, "s"
    image = MetadataImage()
    _, applying_s = measure_cpu_s(lambda: image.apply_records(enumerate(records)))
    yield "applying the records", applying_s, "s"
    yield "memory of the image", (resident_bytes() - before) / MIB, "MiB"
    _, indexing_s = measure_cpu_s(lambda: image.partition_index)
    yield "a new voter indexes the partitions (in steps)", indexing_s, "s"
    yield "memory including this index", (resident_bytes() - before) / MIB, "MiB"
    snapshot, listing_s = measure_cpu_s(lambda: image.to_records(1))
    yield "listing a snapshot (blocks the event loop)", listing_s, "s"
    encoded, encoding_s = measure_cpu_s(lambda: [encode_record(record) for record in snapshot])
    yield "  encoding it (in another thread)", encoding_s, "s"
    yield "  its size", sum(map(len, encoded)) / MIB, "MiB"
    _, decoding_s = measure_cpu_s(lambda: MetadataImage().apply_records(enumerate(map(decode_record, encoded))))
    yield "start from a snapshot", decoding_s, "s"
    changes, fencing_s = measure_cpu_s(lambda: broker_plans.plan_fencing(image, 1, lambda _: RULES))
    yield "a broker fails: plan", fencing_s, "s"
    yield "  partitions that change", len(changes), ""
    encoded_changes, encoding_s = measure_cpu_s(lambda: [encode_record(record) for record in changes])
    yield "  its records", sum(map(len, encoded_changes)) / MIB, "MiB"
    yield "  encoding the records", encoding_s, "s"
    _, taking_s = measure_cpu_s(
        lambda: image.apply_records(enumerate(map(decode_record, encoded_changes), image.end_offset))
    )
    yield "  each broker decodes and applies the records", taking_s, "s"
    _, take_over_s = measure_cpu_s(lambda: asyncio.run(take_over(image, failed=2)))
    yield "a voter takes over from a controller that failed", take_over_s, "s"
    _, leading_s = measure_cpu_s(lambda: asyncio.run(restore_preferred_leaders(image)))
    yield "preferred leaders are looked for, every 5 minutes", leading_s, "s"
    for topics in (1, 10):
        size, answering_s = measure_cpu_s(partial(metadata_response_size, image, topics))
        yield f"Metadata request for {topics * PARTITIONS_PER_TOPIC} partitions", answering_s * 1000, "ms"
        yield "  response size", size / 1024, "KiB"


def build_cluster_records(brokers: int, partitions: int) -> list[MetadataRecord]:
    """The metadata records of a healthy cluster."""
    ids = random.Random(1)
    directories = {broker: UUID(int=ids.getrandbits(128)) for broker in range(1, brokers + 1)}
    places = [UsableBroker(broker, f"rack-{broker % RACKS}") for broker in directories]
    cells = divide_into_cells(places)
    records: list[MetadataRecord] = []
    for at in places:
        here = {"PLAINTEXT": Endpoint(f"broker-{at.broker}.brokers.events.svc.cluster.local", 9092)}
        incarnation, log_dirs = UUID(int=ids.getrandbits(128)), (directories[at.broker],)
        records.append(RegisterBrokerRecord(at.broker, incarnation, here, at.rack, log_dirs, None, at.broker))
        records.append(BrokerRegistrationChangeRecord(at.broker, at.broker, fenced=False))
    for number in range(partitions // PARTITIONS_PER_TOPIC):
        topic = UUID(int=ids.getrandbits(128))
        records.append(TopicRecord(f"events.of-team-{number % 100}.kind-{number}", topic))
        start = ids.randrange(brokers)
        for index, replicas in enumerate(
            assign_replicas(PARTITIONS_PER_TOPIC, REPLICAS, places, start=start, shift=number, cells=cells)
        ):
            held_in = tuple(directories[broker] for broker in replicas)
            records.append(PartitionRecord(topic, index, replicas, replicas, replicas[0], directories=held_in))
    return records


async def take_over(image: MetadataImage, failed: int) -> None:
    """The decisions with which `Controller.run` begins: the failed controller, which led its share
    of the partitions, is fenced.
    """
    small = SmallController(image)
    await small.brokers.fence_broker(failed, image.brokers[failed].epoch, "another controller was elected")
    await small.replicas.clear_unneeded_eligible_replicas()


async def restore_preferred_leaders(image: MetadataImage) -> None:
    await SmallController(image).replicas.restore_preferred_leaders()


def metadata_response_size(image: MetadataImage, topics: int) -> int:
    """Size in bytes of the response to a Metadata request for `topics` topics."""

    async def respond() -> int:
        broker = SmallBroker(Path("/nowhere"))
        broker.image = image
        named = tuple(MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in list(image.topics)[:topics])
        response = await metadata(
            context(broker, METADATA_VERSION), MetadataRequest(topics=named, include_topic_authorized_operations=False)
        )
        return len(write_response(METADATA_API, METADATA_VERSION, 1, response))

    return asyncio.run(respond())


def measure_cpu_s(work: Callable[[], T]) -> tuple[T, float]:
    """The result of `work` and the seconds of processor time that it took."""
    began = time.process_time()
    done = work()
    return done, time.process_time() - began


def resident_bytes() -> int:
    """Resident memory of this process in bytes."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if "VmRSS" in line) * 1024


if __name__ == "__main__":
    main()
