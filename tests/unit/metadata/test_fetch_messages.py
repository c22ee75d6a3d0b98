"""The questions by which the metadata log is copied, as messages."""

from dataclasses import replace
from uuid import UUID

from kio.schema.fetch.v18.request import FetchTopic

from ottla_broker.metadata.metadata_fetch import MetadataFetchRequest
from ottla_broker.metadata.quorum_messages import build_fetch_request, parse_fetch_request
from ottla_broker.metadata.raft_rules import EpochAndOffset

ASK = MetadataFetchRequest(2, UUID(int=5), 7, EpochAndOffset(6, 100), 90, 1000, 250, "cluster")


def test_a_question_goes_over_as_it_is() -> None:
    assert parse_fetch_request(build_fetch_request(ASK)) == ASK


def test_topics_that_are_named_without_partitions_ask_for_nothing() -> None:
    """The fuzzer found it (seed 12)."""
    request = build_fetch_request(ASK)
    empty = FetchTopic(topic_id=UUID(int=9), partitions=())
    assert parse_fetch_request(replace(request, topics=(empty, *request.topics))) == ASK
