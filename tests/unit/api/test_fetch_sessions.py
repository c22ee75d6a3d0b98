"""Fetch sessions: which are kept, and what an incremental response includes."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from ottla_broker.replication.fetch_sessions import (
    EVICTABLE_AFTER_S,
    CachedPartition,
    FetchSession,
    FetchSessionCache,
    PartitionKey,
)
from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.fetch_request import FetchRequest, FetchRequestPartition
from ottla_broker.wire.fetch_response import FetchResponsePartition


class SessionCache:
    """A cache of at most `slots` sessions, and a clock that the test advances."""

    def __init__(self, slots: int) -> None:
        self.time = 0.0
        self._cache = FetchSessionCache(lambda: slots, lambda: self.time, random.Random(1).randrange)

    def __len__(self) -> int:
        return len(self._cache)

    def request(
        self,
        session_id: int,
        epoch: int,
        *partitions: int,
        forgotten: Sequence[PartitionKey] = (),
        by_ids: bool = False,
    ) -> FetchSession | None:
        """The session of a request for these partitions of topic `t`; None if it gets none."""
        requested = [FetchRequestPartition("t", index, 0, 100) for index in partitions]
        request = FetchRequest(-1, 0, 1, 100, 0, session_id, epoch, requested, list(forgotten))
        session, _ = self._cache.session_for(request, by_ids=by_ids)
        return session if session.id else None


def cached(session: FetchSession, index: int) -> CachedPartition:
    return session.partitions["t", index]


def send(session: FetchSession, data: FetchResponsePartition) -> bool:
    """Sends a response. True if an incremental response includes this partition."""
    is_included = cached(session, data.partition).is_news(data)
    cached(session, data.partition).on_response(data)
    return is_included


def test_new_session_evicts_an_idle_or_smaller_one() -> None:
    sessions = SessionCache(2)
    one, two = sessions.request(0, 0, 1, 2), sessions.request(0, 0, 1, 2)
    assert one is not None
    assert two is not None
    assert sessions.request(0, 0, 1) is None  # smaller than the others, which are in use: no session
    assert sessions.request(one.id, 1) is one
    three = sessions.request(0, 0, 1, 2, 3)  # larger than the least recently used, which is `two`
    assert three is not None
    with pytest.raises(KafkaError) as raised:
        sessions.request(two.id, 1)
    assert raised.value.code is ErrorCode.fetch_session_id_not_found
    sessions.time += EVICTABLE_AFTER_S
    assert sessions.request(0, 0, 1) is not None
    assert len(sessions) == 2


def test_without_slots_there_are_no_sessions() -> None:
    assert SessionCache(0).request(0, 0, 1) is None


def test_session_with_topic_ids_rejects_topic_names() -> None:
    sessions = SessionCache(1)
    session = sessions.request(0, 0, 1, by_ids=True)
    assert session is not None
    with pytest.raises(KafkaError) as raised:
        sessions.request(session.id, 1, 2)
    assert raised.value.code is ErrorCode.fetch_session_topic_id_error
    assert sessions.request(session.id, 1, by_ids=True) is session  # the rejected request has changed nothing
    assert list(session.partitions) == [("t", 1)]


def test_session_may_start_empty_and_ends_with_its_last_partition() -> None:
    sessions = SessionCache(1)
    session = sessions.request(0, 0)
    assert session is not None
    assert sessions.request(session.id, 1, 1) is session
    assert sessions.request(session.id, 2, forgotten=[("t", 1)]) is None
    with pytest.raises(KafkaError) as raised:
        sessions.request(session.id, 3)
    assert raised.value.code is ErrorCode.fetch_session_id_not_found


def test_partition_with_records_is_moved_behind_the_others() -> None:
    session = SessionCache(1).request(0, 0, 1, 2, 3)
    assert session is not None
    send(session, FetchResponsePartition("t", 1, ErrorCode.none, 5, 5, 0, b"records"))
    assert [it.request.partition for it in session.changed] == [2, 3, 1]


def test_partitions_that_did_not_fit_keep_their_position() -> None:
    session = SessionCache(1).request(0, 0, 1, 2, 3)
    assert session is not None
    for index, records in ((1, b"records"), (2, b""), (3, b"")):
        cached(session, index).has_more = not records
        send(session, FetchResponsePartition("t", index, ErrorCode.none, 5, 5, 0, records))
    assert [it.request.partition for it in session.changed] == [2, 3, 1]


def test_error_and_its_end_are_included_in_responses() -> None:
    session = SessionCache(1).request(0, 0, 1)
    assert session is not None
    response = FetchResponsePartition("t", 1, ErrorCode.none, 5, 5, 0)
    assert send(session, response)
    assert not send(session, response)
    assert send(session, FetchResponsePartition("t", 1, ErrorCode.not_leader_or_follower))
    assert send(session, FetchResponsePartition("t", 1, ErrorCode.none, -1, -1, -1))


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([-1, 0, 1, 2]), st.integers(0, 3))), st.integers(0, 3))
@settings(max_examples=100, deadline=None, database=None)
def test_there_are_never_more_sessions_than_slots(requests: list[tuple[int, int, int]], slots: int) -> None:
    sessions = SessionCache(slots)
    ids = [0]
    for which, epoch, partition_count in requests:
        try:
            session = sessions.request(ids[which % len(ids)], epoch, *range(partition_count))
        except KafkaError:
            continue
        if session is not None and session.id not in ids:
            ids.append(session.id)
        assert len(sessions) <= slots


def test_all_partitions_are_read_again_when_the_rights_of_the_fetcher_may_have_changed() -> None:
    session = SessionCache(2).request(0, 0, 1, 2)
    assert session is not None
    session.read_as(("alice", 1))
    for one in [*session.changed]:
        session.on_response(one, FetchResponsePartition("t", one.request.partition, ErrorCode.none))
    assert not session.changed
    session.read_as(("alice", 1))
    assert not session.changed
    session.read_as(("alice", 2))
    assert [one.request.partition for one in session.changed] == [1, 2]
