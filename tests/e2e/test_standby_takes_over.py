"""A cluster with appended sources, and a standby that mirrors it: after a failover the standby
continues with the sources at their positions, and the old cluster does so after the failback. Each
record is there once.
"""

from collections.abc import Callable

from ottla_broker.log.producer_state import FIRST_RESERVED_PRODUCER_ID
from ottla_broker.wire.batch import parse_batch_header
from tests.brokers import BrokerProcess, run_ottla_broker
from tests.e2e.mirroring import log_bytes, produce, seen, set_mirror, status, watermarks
from tests.e2e.test_mirror_names import create
from tests.waiting import eventually

TOPIC = "flights"


def mirror(source: BrokerProcess, target: BrokerProcess, name: str, **settings: str) -> None:
    given = {"bootstrap.servers": source.bootstrap, "topics": TOPIC, "metadata.max.age.ms": "500"}
    set_mirror(target.bootstrap, name, given | {key.replace("_", "."): value for key, value in settings.items()})


def values(broker: BrokerProcess) -> list[bytes | None]:
    return [one.value for one in seen(broker.bootstrap, TOPIC, 0)]


def flights(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def marks(broker: BrokerProcess) -> set[int]:
    """Producer ids of the sources in the broker's log."""
    log, at, found = log_bytes(broker.log_dir, TOPIC, 0), 0, set()
    while at < len(log):
        header = parse_batch_header(log, at)
        found |= {header.producer_id} if header.producer_id >= FIRST_RESERVED_PRODUCER_ID else set()
        at += header.size
    return found


def until(holds: Callable[[], bool], *brokers: BrokerProcess) -> None:
    eventually(
        holds,
        within_s=30,
        message=lambda: "\n".join(
            f"{status(it.bootstrap, TOPIC, 0)}\n{it.log_tail(2500)}" for it in brokers if it.is_running
        ),
    )


def test_sources_continue_at_their_positions_after_failover_and_failback() -> None:
    with run_ottla_broker() as newark, run_ottla_broker() as region, run_ottla_broker() as standby:
        create(newark, TOPIC)
        produce(newark.bootstrap, TOPIC, flights(0, 100), enable_idempotence=True)
        mirror(newark, region, "newark", offsets="Appended")
        mirror(region, standby, "region")
        until(lambda: watermarks(standby.bootstrap, TOPIC, 0)[1] == 100, region, standby)
        eventually(lambda: "flights" in standby.log_tail(), within_s=10)
        region.kill()
        produce(newark.bootstrap, TOPIC, flights(100, 150))

        # The standby takes over: it knows how far Newark was copied.
        mirror(region, standby, "region", role="FailedOver")
        until(lambda: status(standby.bootstrap, TOPIC, 0).get("state") == "FailedOver", standby)
        mirror(newark, standby, "newark", offsets="Appended")
        until(lambda: watermarks(standby.bootstrap, TOPIC, 0)[1] >= 150, standby)
        produce(standby.bootstrap, TOPIC, [b"of the standby"])
        produce(newark.bootstrap, TOPIC, flights(150, 160))
        until(lambda: watermarks(standby.bootstrap, TOPIC, 0)[1] >= 161, standby)
        there = [it for it in values(standby) if it != b"of the standby"]
        assert there == flights(0, 160), "each once, in their order"
        assert len(marks(standby)) == 1
        standby.kill()
        standby.start()
        produce(newark.bootstrap, TOPIC, flights(160, 170))
        until(lambda: watermarks(standby.bootstrap, TOPIC, 0)[1] >= 171, standby)

        # The region is back, and goes on with Newark as it was told. It does not become a copy
        # before that ends.
        region.start()
        until(lambda: watermarks(region.bootstrap, TOPIC, 0)[1] == 170, region)
        mirror(standby, region, "back", on_divergence="Truncate")
        until(lambda: "mirror 'newark' appends records to it: end that first" in region.log_tail(), region)
        mirror(newark, region, "newark", role="FailedOver")
        until(lambda: seen(region.bootstrap, TOPIC, 0) == seen(standby.bootstrap, TOPIC, 0), region, standby)
        until(lambda: status(region.bootstrap, TOPIC, 0).get("state") == "Replicating", region)
        produce(newark.bootstrap, TOPIC, flights(170, 180))
        until(lambda: watermarks(region.bootstrap, TOPIC, 0)[1] >= 181, region, standby)

        # And home.
        mirror(newark, standby, "newark", role="FailedOver")
        mirror(standby, region, "back", role="FailedOver")
        until(lambda: status(region.bootstrap, TOPIC, 0).get("state") == "FailedOver", region)
        mirror(newark, region, "newark", role="Replicate")
        mirror(region, standby, "region", role="Replicate", on_divergence="Truncate")
        produce(newark.bootstrap, TOPIC, flights(180, 200))
        until(lambda: watermarks(standby.bootstrap, TOPIC, 0)[1] >= 201, region, standby)
        for broker in (region, standby):
            assert [it for it in values(broker) if it != b"of the standby"] == flights(0, 200)
        assert log_bytes(region.log_dir, TOPIC, 0) == log_bytes(standby.log_dir, TOPIC, 0)
        assert len(marks(region)) == 1, "one mark for one source, wherever it was copied"
