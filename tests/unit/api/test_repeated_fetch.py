"""A fetch that differs from the last one of its connection only in its offset is served without
reading its header, unless a quota applies or the broker is not ready.
"""

from asyncio import Future
from typing import cast

from ottla_broker.broker import Broker
from ottla_broker.dispatcher import RequestDispatcher
from ottla_broker.requests.reply import Reply
from ottla_broker.security.client_quota_manager import ClientQuotaManager, QuotaWindows
from ottla_broker.security.client_quotas import QuotaEntity
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import write_request
from ottla_broker.wire.request_header import read_request_header
from tests.unit.api.brokers import SmallBroker, append, context
from tests.unit.api.calls import PLENTY
from tests.unit.api.requests import fetch_request
from tests.unit.async_tests import async_test

BOB: QuotaEntity = (("user", "bob"),)


class Client:
    """One connection to a broker with a topic of three records."""

    def __init__(self, broker: SmallBroker) -> None:
        (partition,) = broker.add_topic("a")
        for value in (b"0", b"1", b"2"):
            append(partition, value)
        broker.client_quotas = ClientQuotaManager(QuotaWindows(), lambda: 0.0)
        self.broker = broker
        self.dispatcher = RequestDispatcher(cast(Broker, broker))
        self.state = context(broker, 11).connection

    def fetch(self, correlation_id: int, offset: int) -> bytes:
        """Serves the whole request."""
        frame = self._frame(correlation_id, offset)
        return as_bytes(self.dispatcher.dispatch(frame, read_request_header(frame), self.state, PLENTY))

    def repeat(self, correlation_id: int, offset: int) -> Reply:
        """Serves a fetch like the last one; None if the whole request is needed."""
        return self.dispatcher.repeat_fetch(self._frame(correlation_id, offset), self.state, PLENTY)

    def _frame(self, correlation_id: int, offset: int) -> bytearray:
        request = fetch_request({("a", 0): offset}, wait_ms=0)
        return write_request(ApiKey.FETCH, 11, correlation_id, "me", request)[4:]


def as_bytes(reply: Reply) -> bytes:
    assert reply is not None and not isinstance(reply, Future)
    return b"".join(reply)


@async_test
async def test_repetition_gets_the_same_response_and_is_counted(broker: SmallBroker) -> None:
    client = Client(broker)
    assert client.repeat(1, 0) is None  # nothing to repeat
    client.fetch(2, 0)
    for correlation_id, offset in ((3, 1), (4, 2), (5, 3), (6, 4)):  # the last but one is empty, the last out of range
        repeated = as_bytes(client.repeat(correlation_id, offset))
        client.state.last_fetch = None
        assert repeated == client.fetch(correlation_id, offset)
    assert client.dispatcher.request_counts[ApiKey.FETCH] == 1 + 4 + 4


@async_test
async def test_quotas_and_a_broker_that_is_not_ready_need_the_whole_request(broker: SmallBroker) -> None:
    client = Client(broker)
    client.fetch(1, 0)
    assert client.repeat(2, 0) is not None
    broker.client_quotas.update({BOB: {"consumer_byte_rate": 1.0}})
    assert client.repeat(3, 0) is None
    broker.client_quotas.update({})
    assert client.repeat(4, 0) is not None
    broker.ready = False
    assert client.repeat(5, 0) is None
