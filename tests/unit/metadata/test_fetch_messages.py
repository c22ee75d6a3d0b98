"""The questions by which the metadata log is copied, as messages."""

from dataclasses import replace
from uuid import UUID

from kio.schema.fetch.v18.request import FetchTopic

from ottla_broker.metadata.fetch_messages import ask_of, request_of
from ottla_broker.metadata.fetching import Ask
from ottla_broker.metadata.quorum_rules import Position

ASK = Ask(2, UUID(int=5), 7, Position(6, 100), 90, 1000, 250, "cluster")


def test_a_question_goes_over_as_it_is() -> None:
    assert ask_of(request_of(ASK)) == ASK


def test_topics_that_are_named_without_partitions_ask_for_nothing() -> None:
    """The fuzzer found it (seed 12)."""
    request = request_of(ASK)
    empty = FetchTopic(topic_id=UUID(int=9), partitions=())
    assert ask_of(replace(request, topics=(empty, *request.topics))) == ASK
