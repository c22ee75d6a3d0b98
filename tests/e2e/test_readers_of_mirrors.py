"""Consumers of a mirrored topic while its mirror fails over."""

import confluent_kafka as ck
import pytest

from tests.brokers import BROKERS, run_ottla_broker
from tests.clients import librdkafka as rd
from tests.e2e.mirroring import Pair, produce
from tests.waiting import eventually

READ_COMMITTED = "read_committed"


def read_value(reader: ck.Consumer) -> bytes:
    message = eventually(lambda: reader.poll(0.5))
    assert message is not None and message.error() is None
    return bytes(message.value() or b"")


@pytest.mark.parametrize("kind", BROKERS)
def test_a_reader_behind_an_open_transaction_continues_when_the_source_is_lost(kind: str) -> None:
    """The reader stays connected. The transaction is aborted by the failover, because no
    coordinator is left that could end it."""
    with BROKERS[kind]() as source, run_ottla_broker() as target:
        pair = Pair(source, target)
        pair.create_topic("money")
        pair.mirror()
        producer = ck.Producer({"bootstrap.servers": source.bootstrap, "transactional.id": "bank", "linger.ms": 0})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("money", b"committed", partition=0)
        producer.commit_transaction(30)
        producer.begin_transaction()
        producer.produce("money", b"open", partition=0)
        assert producer.flush(30) == 0
        produce(source.bootstrap, "money", [b"behind it"])
        pair.wait_until_caught_up("money")
        with rd.open_consumer(target.bootstrap, isolation_level=READ_COMMITTED) as reader:
            reader.assign([ck.TopicPartition("money", 0, ck.OFFSET_BEGINNING)])
            assert read_value(reader) == b"committed"
            everything = rd.consume(target.bootstrap, "money", isolation_level="read_uncommitted")
            assert rd.values_of(everything)[-2:] == [b"open", b"behind it"]
            assert reader.poll(0.5) is None
            source.kill()
            pair.mirror(role="FailedOver")
            assert read_value(reader) == b"behind it"
            produce(target.bootstrap, "money", [b"after the failover"])
            assert read_value(reader) == b"after the failover"
