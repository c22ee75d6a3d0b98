"""Fetch requests for the metadata log, encoded and decoded."""

from dataclasses import replace
from uuid import UUID

from kio.schema.fetch.v18.request import FetchTopic

from ottla_broker.metadata.metadata_fetch import MetadataFetchRequest
from ottla_broker.metadata.quorum_messages import build_fetch_request, parse_fetch_request
from ottla_broker.metadata.raft_rules import EpochAndOffset

FETCH = MetadataFetchRequest(2, UUID(int=5), 7, EpochAndOffset(6, 100), 90, 1000, 250, "cluster")


def test_a_fetch_survives_encoding_and_decoding() -> None:
    assert parse_fetch_request(build_fetch_request(FETCH)) == FETCH


def test_a_topic_without_partitions_in_a_fetch_is_ignored() -> None:
    """Found by the fuzzer (seed 12)."""
    request = build_fetch_request(FETCH)
    empty = FetchTopic(topic_id=UUID(int=9), partitions=())
    assert parse_fetch_request(replace(request, topics=(empty, *request.topics))) == FETCH
