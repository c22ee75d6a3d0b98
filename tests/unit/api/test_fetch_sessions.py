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


class Sessions(FetchSessionCache):
    def __init__(self, slots: int) -> None:
        self.time = 0.0
        super().__init__(lambda: slots, lambda: self.time, random.Random(1).randrange)

    def ask(
        self,
        session_id: int,
        epoch: int,
        *partitions: int,
        forgotten: Sequence[PartitionKey] = (),
        by_ids: bool = False,
    ) -> FetchSession | None:
        """None when the request is served without a session."""
        wanted = [FetchRequestPartition("t", index, 0, 100) for index in partitions]
        request = FetchRequest(-1, 0, 1, 100, 0, session_id, epoch, wanted, list(forgotten))
        session, _ = self.session_for(request, by_ids=by_ids)
        return session if session.id else None


def cached(session: FetchSession, index: int) -> CachedPartition:
    return session.partitions["t", index]


def send(session: FetchSession, data: FetchResponsePartition) -> bool:
    """Whether an incremental response holds it."""
    news = cached(session, data.partition).is_news(data)
    cached(session, data.partition).sent(data)
    return news


def test_a_new_session_takes_the_place_of_an_idle_or_smaller_one() -> None:
    sessions = Sessions(2)
    one, two = sessions.ask(0, 0, 1, 2), sessions.ask(0, 0, 1, 2)
    assert one is not None
    assert two is not None
    assert sessions.ask(0, 0, 1) is None  # as busy and smaller: it does without
    assert sessions.ask(one.id, 1) is one
    three = sessions.ask(0, 0, 1, 2, 3)  # larger than the least recently used, which is `two`
    assert three is not None
    with pytest.raises(KafkaError) as refused:
        sessions.ask(two.id, 1)
    assert refused.value.code is ErrorCode.fetch_session_id_not_found
    sessions.time += EVICTABLE_AFTER_S
    assert sessions.ask(0, 0, 1) is not None
    assert (len(sessions), sessions.evicted) == (2, 2)


def test_without_slots_there_are_no_sessions() -> None:
    assert Sessions(0).ask(0, 0, 1) is None


def test_a_session_keeps_to_ids_or_to_names() -> None:
    sessions = Sessions(1)
    session = sessions.ask(0, 0, 1, by_ids=True)
    assert session is not None
    with pytest.raises(KafkaError) as refused:
        sessions.ask(session.id, 1, 2)
    assert refused.value.code is ErrorCode.fetch_session_topic_id_error
    assert sessions.ask(session.id, 1, by_ids=True) is session  # the rejected request has changed nothing
    assert list(session.partitions) == [("t", 1)]


def test_a_session_may_begin_empty_and_ends_when_it_holds_no_partition() -> None:
    sessions = Sessions(1)
    session = sessions.ask(0, 0)
    assert session is not None
    assert sessions.ask(session.id, 1, 1) is session
    assert sessions.ask(session.id, 2, forgotten=[("t", 1)]) is None
    with pytest.raises(KafkaError) as refused:
        sessions.ask(session.id, 3)
    assert refused.value.code is ErrorCode.fetch_session_id_not_found


def test_a_partition_that_gave_records_stands_behind_the_others() -> None:
    session = Sessions(1).ask(0, 0, 1, 2, 3)
    assert session is not None
    send(session, FetchResponsePartition("t", 1, ErrorCode.none, 5, 5, 0, b"records"))
    assert [one.request.partition for one in session.changed] == [2, 3, 1]


def test_partitions_for_which_no_room_was_left_keep_their_turn() -> None:
    session = Sessions(1).ask(0, 0, 1, 2, 3)
    assert session is not None
    for index, records in ((1, b"records"), (2, b""), (3, b"")):
        cached(session, index).has_more = not records
        send(session, FetchResponsePartition("t", index, ErrorCode.none, 5, 5, 0, records))
    assert [one.request.partition for one in session.changed] == [2, 3, 1]


def test_an_error_is_sent_and_so_is_its_end() -> None:
    session = Sessions(1).ask(0, 0, 1)
    assert session is not None
    fine = FetchResponsePartition("t", 1, ErrorCode.none, 5, 5, 0)
    assert send(session, fine)
    assert not send(session, fine)
    assert send(session, FetchResponsePartition("t", 1, ErrorCode.not_leader_or_follower))
    assert send(session, FetchResponsePartition("t", 1, ErrorCode.none, -1, -1, -1))


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([-1, 0, 1, 2]), st.integers(0, 3))), st.integers(0, 3))
@settings(max_examples=100, deadline=None, database=None)
def test_there_are_never_more_sessions_than_slots(asked: list[tuple[int, int, int]], slots: int) -> None:
    sessions = Sessions(slots)
    ids = [0]
    for which, epoch, partitions in asked:
        try:
            session = sessions.ask(ids[which % len(ids)], epoch, *range(partitions))
        except KafkaError:
            continue
        if session is not None and session.id not in ids:
            ids.append(session.id)
        assert len(sessions) <= slots
