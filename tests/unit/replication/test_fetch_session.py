"""What a follower names in its requests, without a connection."""

from types import SimpleNamespace
from typing import cast
from uuid import UUID

from ottla_broker.replication.fetch_session import FollowerSession
from ottla_broker.replication.partition import Partition
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.replica_fetch import FetchResponse, Request

TOPIC = UUID(int=7)


def partition(number: int) -> Partition:
    log = SimpleNamespace(start=0, end=0)
    return cast(Partition, SimpleNamespace(topic_id=TOPIC, partition=number, leader_epoch=1, log=log))


def next_request(session: FollowerSession, now_s: float = 0.0) -> Request | None:
    return session.next_request(now_s, Request(2, 5, 500, 1, 1 << 20), 1 << 20)


def named(request: Request) -> list[int]:
    return [one.partition for _, wanted in request.topics for one in wanted]


def answer(session: FollowerSession) -> None:
    session.heard(FetchResponse(ErrorCode.none, 77, []))


def test_what_rests_leaves_the_session_and_what_is_back_before_it_could_leave_stays() -> None:
    session = FollowerSession()
    first, second = partition(0), partition(1)
    session.follow(first)
    request = next_request(session)
    assert request is not None
    assert named(request) == [0]
    answer(session)
    next_request(session)  # one waits at the leader
    session.rest(session.followed[TOPIC, 0], until_s=1.0)
    session.follow(second)
    request = next_request(session)
    assert request is not None
    assert (named(request), list(request.forgotten)) == ([1], [(TOPIC, (0,))])

    answer(session)
    session.rest(session.followed[TOPIC, 1], until_s=1.0)  # the other request still waits: nothing can say so
    assert next_request(session) is None
    session.rest_is_over()
    request = next_request(session, now_s=1.0)
    assert request is not None
    assert sorted(named(request)) == [0, 1]
    assert list(request.forgotten) == []
