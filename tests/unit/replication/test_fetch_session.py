"""The partitions that a follower names in the requests of its fetch session."""

from dataclasses import dataclass, field
from uuid import UUID

from ottla_broker.replication.fetch_session_handler import FetchSessionHandler
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.fetch_request import FetchRequest, FetchRequestPartition
from ottla_broker.wire.fetch_response import FetchResponse, FetchResponsePartition

TOPIC = UUID(int=7)


@dataclass(eq=False)
class FetchedPartition:
    """A partition as the session handler needs it."""

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


def next_request(session: FetchSessionHandler[FetchedPartition], now_s: float = 0.0) -> FetchRequest | None:
    return session.next_request(FetchRequest(2, 500, 1, 1 << 20, 0, 0, 0, (), ()), now_s, 1 << 20)


def partitions_of(request: FetchRequest) -> list[int]:
    return [it.partition for it in request.partitions]


def respond(session: FetchSessionHandler[FetchedPartition], *partitions: int) -> list[int]:
    """A response with these partitions. Returns those whose data the session accepts."""
    data = [FetchResponsePartition(TOPIC, index) for index in partitions]
    return [it.index for it, _ in session.on_response(FetchResponse(ErrorCode.none, 77, data))]


def test_paused_partition_is_forgotten_unless_it_resumes_before_the_next_request() -> None:
    session: FetchSessionHandler[FetchedPartition] = FetchSessionHandler(pipelined=True)
    first, second = FetchedPartition(0), FetchedPartition(1)
    session.add(first)
    request = next_request(session)
    assert request is not None
    assert partitions_of(request) == [0]
    respond(session)
    next_request(session)  # a request that waits at the leader
    session.pause(first, until_s=1.0)
    session.add(second)
    request = next_request(session)
    assert request is not None
    assert (partitions_of(request), list(request.forgotten)) == ([1], [(TOPIC, 0)])

    respond(session)
    session.pause(second, until_s=1.0)  # the other request still waits, so no request can forget it
    assert next_request(session) is None
    session.retry_paused()
    request = next_request(session, now_s=1.0)
    assert request is not None
    assert sorted(partitions_of(request)) == [0, 1]
    assert list(request.forgotten) == []


def test_second_request_is_sent_only_if_a_partition_must_be_fetched_at_once() -> None:
    for pipelined in (True, False):
        session: FetchSessionHandler[FetchedPartition] = FetchSessionHandler(pipelined=pipelined)
        first, second = FetchedPartition(0), FetchedPartition(1)
        session.add(first)
        next_request(session)
        respond(session)
        assert next_request(session) is not None
        session.fetch_next(first)
        assert next_request(session) is None
        session.add(second)
        assert (next_request(session) is not None) is pipelined


def test_data_of_an_older_request_is_ignored_for_partitions_named_since() -> None:
    session: FetchSessionHandler[FetchedPartition] = FetchSessionHandler(pipelined=True)
    first, second = FetchedPartition(0), FetchedPartition(1)
    session.add(first)
    session.add(second)
    next_request(session)
    assert respond(session, 0, 1) == [0, 1]
    next_request(session)
    session.fetch_now(first)
    next_request(session)
    assert respond(session, 0, 1) == [1]
    assert respond(session, 0) == [0]


def test_every_partition_is_named_without_a_session_at_the_leader() -> None:
    session: FetchSessionHandler[FetchedPartition] = FetchSessionHandler(pipelined=False)
    for index in range(2):
        session.add(FetchedPartition(index))
    for _ in range(2):
        request = next_request(session)
        assert request is not None
        assert (partitions_of(request), request.session_id, request.session_epoch) == ([0, 1], 0, 0)
        session.on_response(FetchResponse(ErrorCode.none, 0, []))


def test_no_request_is_sent_while_every_partition_is_paused() -> None:
    session: FetchSessionHandler[FetchedPartition] = FetchSessionHandler(pipelined=False)
    only = FetchedPartition(0)
    session.add(only)
    next_request(session)
    respond(session)
    session.pause(only, until_s=5.0)
    assert next_request(session) is None
    assert session.next_retry_s == 5.0
    assert next_request(session, now_s=5.0) is not None
