"""A cluster with appended sources, and a standby that mirrors it. After a failover the standby
continues at the sources' positions, and after the failback the old cluster does. Each record is
appended once.
"""

from collections.abc import Callable

from ottla_broker.log.producer_state import FIRST_RESERVED_PRODUCER_ID
from ottla_broker.wire.batch import parse_batch_header
from tests.brokers import BrokerProcess, run_ottla_broker
from tests.e2e.mirroring import (
    create_topic,
    mirror_status,
    mirror_topics,
    produce,
    read_log_bytes,
    read_records,
    read_watermarks,
)
from tests.waiting import eventually

TOPIC = "flights"


def read_values(broker: BrokerProcess) -> list[bytes | None]:
    return [record.value for record in read_records(broker.bootstrap, TOPIC, 0)]


def flights(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def source_producer_ids(broker: BrokerProcess) -> set[int]:
    """Producer ids in the broker's log that belong to sources."""
    log, at, found = read_log_bytes(broker.log_dir, TOPIC, 0), 0, set()
    while at < len(log):
        header = parse_batch_header(log, at)
        found |= {header.producer_id} if header.producer_id >= FIRST_RESERVED_PRODUCER_ID else set()
        at += header.size
    return found


def wait_until(condition: Callable[[], bool], *brokers: BrokerProcess) -> None:
    eventually(
        condition,
        within_s=30,
        message=lambda: "\n".join(
            f"{mirror_status(it.bootstrap, TOPIC, 0)}\n{it.log_tail(2500)}" for it in brokers if it.is_running
        ),
    )


def test_sources_continue_at_their_positions_after_failover_and_failback() -> None:
    with run_ottla_broker() as newark, run_ottla_broker() as region, run_ottla_broker() as standby:
        create_topic(newark, TOPIC)
        produce(newark.bootstrap, TOPIC, flights(0, 100), enable_idempotence=True)
        mirror_topics(newark, region, "newark", offsets="Appended")
        mirror_topics(region, standby, "region")
        wait_until(lambda: read_watermarks(standby.bootstrap, TOPIC, 0)[1] == 100, region, standby)
        eventually(lambda: "flights" in standby.log_tail(), within_s=10)
        region.kill()
        produce(newark.bootstrap, TOPIC, flights(100, 150))

        # The standby takes over. It knows up to which offset Newark was appended.
        mirror_topics(region, standby, "region", role="FailedOver")
        wait_until(lambda: mirror_status(standby.bootstrap, TOPIC, 0).get("state") == "FailedOver", standby)
        mirror_topics(newark, standby, "newark", offsets="Appended")
        wait_until(lambda: read_watermarks(standby.bootstrap, TOPIC, 0)[1] >= 150, standby)
        produce(standby.bootstrap, TOPIC, [b"of the standby"])
        produce(newark.bootstrap, TOPIC, flights(150, 160))
        wait_until(lambda: read_watermarks(standby.bootstrap, TOPIC, 0)[1] >= 161, standby)
        copied = [value for value in read_values(standby) if value != b"of the standby"]
        assert copied == flights(0, 160), "each record once and in order"
        assert len(source_producer_ids(standby)) == 1
        standby.kill()
        standby.start()
        produce(newark.bootstrap, TOPIC, flights(160, 170))
        wait_until(lambda: read_watermarks(standby.bootstrap, TOPIC, 0)[1] >= 171, standby)

        # The region restarts and continues to append Newark. It cannot become a mirror before
        # this appending has ended.
        region.start()
        wait_until(lambda: read_watermarks(region.bootstrap, TOPIC, 0)[1] == 170, region)
        mirror_topics(standby, region, "back", on_divergence="Truncate")
        wait_until(lambda: "mirror 'newark' appends records to it: end that first" in region.log_tail(), region)
        mirror_topics(newark, region, "newark", role="FailedOver")
        wait_until(
            lambda: read_records(region.bootstrap, TOPIC, 0) == read_records(standby.bootstrap, TOPIC, 0),
            region,
            standby,
        )
        wait_until(lambda: mirror_status(region.bootstrap, TOPIC, 0).get("state") == "Replicating", region)
        produce(newark.bootstrap, TOPIC, flights(170, 180))
        wait_until(lambda: read_watermarks(region.bootstrap, TOPIC, 0)[1] >= 181, region, standby)

        # The region takes over again.
        mirror_topics(newark, standby, "newark", role="FailedOver")
        mirror_topics(standby, region, "back", role="FailedOver")
        wait_until(lambda: mirror_status(region.bootstrap, TOPIC, 0).get("state") == "FailedOver", region)
        mirror_topics(newark, region, "newark", role="Replicate")
        mirror_topics(region, standby, "region", role="Replicate", on_divergence="Truncate")
        produce(newark.bootstrap, TOPIC, flights(180, 200))
        wait_until(lambda: read_watermarks(standby.bootstrap, TOPIC, 0)[1] >= 201, region, standby)
        for broker in (region, standby):
            assert [value for value in read_values(broker) if value != b"of the standby"] == flights(0, 200)
        assert read_log_bytes(region.log_dir, TOPIC, 0) == read_log_bytes(standby.log_dir, TOPIC, 0)
        assert len(source_producer_ids(region)) == 1, "a source has one producer id in every cluster"
