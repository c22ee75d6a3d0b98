"""What a fetcher names in its requests, without a connection."""

from dataclasses import dataclass, field
from uuid import UUID

from ottla_broker.replication.fetch_session_handler import FetchSessionHandler
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.fetch_request import FetchRequest, FetchRequestPartition
from ottla_broker.wire.fetch_response import FetchResponse, FetchResponsePartition

TOPIC = UUID(int=7)


@dataclass(eq=False)
class Fetched:
    index: int
    log_end: int = 0
    requested_offset: int = 0
    named_in: int = 0
    in_session: bool = False
    retry_at_s: float = 0.0
    key: tuple[UUID, int] = field(init=False)

    def __post_init__(self) -> None:
        self.key = (TOPIC, self.index)

    def next_fetch(self, max_bytes: int) -> FetchRequestPartition:
        return FetchRequestPartition(TOPIC, self.index, self.log_end, max_bytes)


def next_request(session: FetchSessionHandler[Fetched], now_s: float = 0.0) -> FetchRequest | None:
    return session.next_request(FetchRequest(2, 500, 1, 1 << 20, 0, 0, 0, (), ()), now_s, 1 << 20)


def named(request: FetchRequest) -> list[int]:
    return [one.partition for one in request.partitions]


def answer(session: FetchSessionHandler[Fetched], *partitions: int) -> list[int]:
    """The partitions for which the answer counts."""
    data = [FetchResponsePartition(TOPIC, index) for index in partitions]
    return [one.index for one, _ in session.on_response(FetchResponse(ErrorCode.none, 77, data))]


def test_a_paused_partition_leaves_the_session_unless_it_is_back_before_the_request_that_says_so() -> None:
    session: FetchSessionHandler[Fetched] = FetchSessionHandler(pipelined=True)
    first, second = Fetched(0), Fetched(1)
    session.add(first)
    request = next_request(session)
    assert request is not None
    assert named(request) == [0]
    answer(session)
    next_request(session)  # one waits at the leader
    session.pause(first, until_s=1.0)
    session.add(second)
    request = next_request(session)
    assert request is not None
    assert (named(request), list(request.forgotten)) == ([1], [(TOPIC, 0)])

    answer(session)
    session.pause(second, until_s=1.0)  # the other request still waits: nothing can say so
    assert next_request(session) is None
    session.retry_paused()
    request = next_request(session, now_s=1.0)
    assert request is not None
    assert sorted(named(request)) == [0, 1]
    assert list(request.forgotten) == []


def test_a_second_request_follows_only_when_a_partition_is_to_be_fetched_at_once() -> None:
    for pipelined in (True, False):
        session: FetchSessionHandler[Fetched] = FetchSessionHandler(pipelined=pipelined)
        first, second = Fetched(0), Fetched(1)
        session.add(first)
        next_request(session)
        answer(session)
        assert next_request(session) is not None
        session.fetch_next(first)
        assert next_request(session) is None
        session.add(second)
        assert (next_request(session) is not None) is pipelined


def test_a_response_to_an_older_request_does_not_count_for_a_partition_that_was_named_since() -> None:
    session: FetchSessionHandler[Fetched] = FetchSessionHandler(pipelined=True)
    first, second = Fetched(0), Fetched(1)
    session.add(first)
    session.add(second)
    next_request(session)
    assert answer(session, 0, 1) == [0, 1]
    next_request(session)
    session.fetch_now(first)
    next_request(session)
    assert answer(session, 0, 1) == [1]
    assert answer(session, 0) == [0]


def test_every_partition_is_named_when_the_broker_remembers_no_session() -> None:
    session: FetchSessionHandler[Fetched] = FetchSessionHandler(pipelined=False)
    for index in range(2):
        session.add(Fetched(index))
    for _ in range(2):
        request = next_request(session)
        assert request is not None
        assert (named(request), request.session_id, request.session_epoch) == ([0, 1], 0, 0)
        session.on_response(FetchResponse(ErrorCode.none, 0, []))


def test_no_request_is_sent_while_every_partition_is_paused() -> None:
    session: FetchSessionHandler[Fetched] = FetchSessionHandler(pipelined=False)
    only = Fetched(0)
    session.add(only)
    next_request(session)
    answer(session)
    session.pause(only, until_s=5.0)
    assert next_request(session) is None
    assert session.next_retry_s == 5.0
    assert next_request(session, now_s=5.0) is not None
