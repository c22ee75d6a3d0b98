"""Protocol messages between the replicas of the metadata log: Fetch (1), FetchSnapshot (59), Vote
(52), BeginQuorumEpoch (53), EndQuorumEpoch (54), DescribeCluster (60), UpdateRaftVoter (82), and
Ottla's own DescribeMetadataReplica.

A broker without peers never imports this module: loading the schemas takes 20 ms of processor time.
"""

import datetime
from collections.abc import AsyncIterator, Sequence
from typing import Any

from kio.schema.begin_quorum_epoch.v1.request import BeginQuorumEpochRequest, LeaderEndpoint, TopicData
from kio.schema.begin_quorum_epoch.v1.request import PartitionData as BeginQuorumEpochPartition
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.end_quorum_epoch.v1.request import EndQuorumEpochRequest, ReplicaInfo
from kio.schema.end_quorum_epoch.v1.request import LeaderEndpoint as EndQuorumEpochEndpoint
from kio.schema.end_quorum_epoch.v1.request import PartitionData as EndQuorumEpochPartition
from kio.schema.end_quorum_epoch.v1.request import TopicData as EndQuorumEpochTopic
from kio.schema.fetch.v18.request import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kio.schema.fetch.v18.response import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from kio.schema.fetch_snapshot.v1.request import FetchSnapshotRequest, PartitionSnapshot, TopicSnapshot
from kio.schema.fetch_snapshot.v1.request import SnapshotId as RequestedSnapshotId
from kio.schema.types import BrokerId, TopicName
from kio.schema.update_raft_voter.v0.request import KRaftVersionFeature, Listener, UpdateRaftVoterRequest
from kio.schema.vote.v2.request import PartitionData as VotePartition
from kio.schema.vote.v2.request import TopicData as VoteTopic
from kio.schema.vote.v2.request import VoteRequest as VoteMessage
from kio.schema.vote.v2.response import VoteResponse
from kio.static.primitive import Records, i8, i16, i32, i32Timedelta, i64, u16

from ottla_broker.metadata.metadata_fetch import (
    METADATA_TOPIC_ID,
    NO_EPOCH_AND_OFFSET,
    LeaderAndEpoch,
    MetadataFetchRequest,
    MetadataFetchResponse,
)
from ottla_broker.metadata.raft_rules import EpochAndOffset, VoteRequest
from ottla_broker.metadata.records import METADATA_TOPIC
from ottla_broker.metadata.voter_history import VOTER_LISTENER
from ottla_broker.metadata.voter_set import ReplicaKey, Voter
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.channel import Channel
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.recovery_messages import VERSION as OWN_VERSION
from ottla_broker.wire.recovery_messages import DescribeMetadataReplicaRequest, DescribeMetadataReplicaResponse

SNAPSHOT_CHUNK_BYTES = 1 << 20


def build_fetch_request(request: MetadataFetchRequest) -> FetchRequest:
    partition = FetchPartition(
        partition=i32(0),
        current_leader_epoch=i32(request.leader_epoch),
        fetch_offset=i64(request.log_end.offset),
        last_fetched_epoch=i32(request.log_end.epoch),
        partition_max_bytes=i32(request.max_bytes),
        replica_directory_id=request.directory_id,
        high_watermark=i64(request.high_watermark),
    )
    return FetchRequest(
        cluster_id=request.cluster_id,
        replica_state=ReplicaState(replica_id=BrokerId(request.replica_id)),
        max_wait=_milliseconds(request.max_wait_ms),
        min_bytes=i32(1),
        max_bytes=i32(request.max_bytes),
        isolation_level=i8(0),
        topics=(FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(partition,)),),
        forgotten_topics_data=(),
    )


def parse_fetch_request(request: FetchRequest) -> MetadataFetchRequest:
    """Reads the first partition of the request, which may name topics without partitions."""
    partition = next(partition for topic in request.topics for partition in topic.partitions)
    return MetadataFetchRequest(
        replica_id=int(request.replica_state.replica_id),
        directory_id=partition.replica_directory_id,
        leader_epoch=int(partition.current_leader_epoch),
        log_end=EpochAndOffset(int(partition.last_fetched_epoch), int(partition.fetch_offset)),
        high_watermark=int(partition.high_watermark),
        max_bytes=min(int(partition.partition_max_bytes), int(request.max_bytes)),
        max_wait_ms=round(request.max_wait.total_seconds() * 1000),
        cluster_id=request.cluster_id,
    )


def build_fetch_response(response: MetadataFetchResponse) -> FetchResponse:
    diverging = response.diverging_epoch or NO_EPOCH_AND_OFFSET
    snapshot = response.snapshot_id or NO_EPOCH_AND_OFFSET
    leader = response.leader or LeaderAndEpoch(-1)
    partition = PartitionData(
        partition_index=i32(0),
        error_code=response.error,
        high_watermark=i64(response.high_watermark),
        last_stable_offset=i64(response.high_watermark),
        log_start_offset=i64(response.log_start_offset),
        diverging_epoch=EpochEndOffset(epoch=i32(diverging.epoch), end_offset=i64(diverging.offset)),
        snapshot_id=SnapshotId(end_offset=i64(snapshot.offset), epoch=i32(snapshot.epoch)),
        current_leader=LeaderIdAndEpoch(leader_id=BrokerId(leader.leader), leader_epoch=i32(leader.epoch)),
        aborted_transactions=None,
        records=Records(response.records),
    )
    nodes: tuple[NodeEndpoint, ...] = ()
    if leader.endpoint is not None:
        host, port = leader.endpoint
        nodes = (NodeEndpoint(node_id=BrokerId(leader.leader), host=host, port=i32(port), rack=None),)
    return FetchResponse(
        throttle_time=_milliseconds(0),
        error_code=ErrorCode.none,
        responses=(FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=(partition,)),),
        node_endpoints=nodes,
    )


def parse_fetch_response(response: FetchResponse) -> MetadataFetchResponse:
    if response.error_code is not ErrorCode.none or not response.responses:
        return MetadataFetchResponse(response.error_code or ErrorCode.unknown_server_error)
    partition = response.responses[0].partitions[0]
    diverging = EpochAndOffset(int(partition.diverging_epoch.epoch), int(partition.diverging_epoch.end_offset))
    snapshot = EpochAndOffset(int(partition.snapshot_id.epoch), int(partition.snapshot_id.end_offset))
    return MetadataFetchResponse(
        partition.error_code,
        int(partition.high_watermark),
        int(partition.log_start_offset),
        bytes(partition.records or b""),
        None if diverging == NO_EPOCH_AND_OFFSET else diverging,
        None if snapshot == NO_EPOCH_AND_OFFSET else snapshot,
        _leader(partition.current_leader.leader_id, partition.current_leader.leader_epoch, response.node_endpoints),
    )


def _leader(leader: int, epoch: int, nodes: Sequence[Any]) -> LeaderAndEpoch | None:
    """The leader that a response names, with its endpoint if that is in the response; None without
    an epoch.
    """
    endpoint = next(((node.host, int(node.port)) for node in nodes if int(node.node_id) == leader), None)
    return LeaderAndEpoch(int(epoch), int(leader), endpoint) if epoch >= 0 else None


async def _send(channel: Channel, request: Any) -> Any:
    """Raises KafkaError if the response as a whole is an error; ConnectionError."""
    response = await channel.send(request)
    if response.error_code is not ErrorCode.none:
        raise KafkaError(response.error_code)
    return response


async def fetch_snapshot(
    channel: Channel, broker_id: int, epoch: int, snapshot_id: EpochAndOffset
) -> AsyncIterator[bytes]:
    """The snapshot's bytes in order. Raises KafkaError with the sender's code, SNAPSHOT_NOT_FOUND
    among them; ConnectionError.
    """
    position, size = 0, 1
    while position < size:
        partition = PartitionSnapshot(
            partition=i32(0),
            current_leader_epoch=i32(epoch),
            snapshot_id=RequestedSnapshotId(end_offset=i64(snapshot_id.offset), epoch=i32(snapshot_id.epoch)),
            position=i64(position),
        )
        request = FetchSnapshotRequest(
            replica_id=BrokerId(broker_id),
            max_bytes=i32(SNAPSHOT_CHUNK_BYTES),
            topics=(TopicSnapshot(name=TopicName(METADATA_TOPIC), partitions=(partition,)),),
        )
        response = await _send(channel, request)
        chunk = response.topics[0].partitions[0]
        if chunk.error_code is not ErrorCode.none:
            raise KafkaError(chunk.error_code, f"snapshot at offset {snapshot_id.offset}: {chunk.error_code.name}")
        data = bytes(chunk.unaligned_records)
        size = int(chunk.size)
        if not data and position < size:
            raise KafkaError(ErrorCode.corrupt_message, f"the snapshot at offset {snapshot_id.offset} ends early")
        position += len(data)
        yield data


async def send_vote(
    channel: Channel, voter: ReplicaKey, request: VoteRequest, cluster_id: str | None
) -> tuple[bool, LeaderAndEpoch | None]:
    """Asks `voter` for its vote. Returns whether it is granted, and the leader that the voter
    knows. Raises KafkaError: INVALID_VOTER_KEY from a broker that is not that voter, and others;
    ConnectionError."""
    partition = VotePartition(
        partition_index=i32(0),
        replica_epoch=i32(request.epoch),
        replica_id=BrokerId(request.candidate.broker),
        replica_directory_id=request.candidate.directory,
        voter_directory_id=voter.directory,
        last_offset_epoch=i32(request.log_end.epoch),
        last_offset=i64(request.log_end.offset),
        pre_vote=request.is_pre_vote,
    )
    topic = VoteTopic(topic_name=TopicName(METADATA_TOPIC), partitions=(partition,))
    request_message = VoteMessage(cluster_id=cluster_id, voter_id=BrokerId(voter.broker), topics=(topic,))
    response: VoteResponse = await _send(channel, request_message)
    answer = response.topics[0].partitions[0]
    if answer.error_code not in (ErrorCode.none, ErrorCode.fenced_leader_epoch):
        raise KafkaError(answer.error_code)
    return answer.vote_granted, _leader(answer.leader_id, answer.leader_epoch, response.node_endpoints)


async def send_begin_quorum_epoch(
    channel: Channel, receiver: ReplicaKey, leader: Voter, epoch: int, cluster_id: str | None
) -> None:
    """Returns when the receiver follows `epoch`. Raises OSError, KafkaError: INVALID_VOTER_KEY from
    another broker.
    """
    host, port = leader.endpoint or ("", 0)
    partition = BeginQuorumEpochPartition(
        partition_index=i32(0),
        voter_directory_id=receiver.directory,
        leader_id=BrokerId(leader.broker),
        leader_epoch=i32(epoch),
    )
    request = BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        voter_id=BrokerId(receiver.broker),
        topics=(TopicData(topic_name=TopicName(METADATA_TOPIC), partitions=(partition,)),),
        leader_endpoints=(LeaderEndpoint(name=VOTER_LISTENER, host=host, port=u16(port)),),
    )
    response = await _send(channel, request)
    code = response.topics[0].partitions[0].error_code
    if code is not ErrorCode.none:
        raise KafkaError(code)


async def send_end_quorum_epoch(
    channel: Channel, leader: Voter, epoch: int, successors: Sequence[ReplicaKey], cluster_id: str | None
) -> None:
    """Raises OSError, KafkaError."""
    host, port = leader.endpoint or ("", 0)
    partition = EndQuorumEpochPartition(
        partition_index=i32(0),
        leader_id=BrokerId(leader.broker),
        leader_epoch=i32(epoch),
        preferred_candidates=tuple(
            ReplicaInfo(candidate_id=BrokerId(broker), candidate_directory_id=directory)
            for broker, directory in successors
        ),
    )
    request = EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=(EndQuorumEpochTopic(topic_name=TopicName(METADATA_TOPIC), partitions=(partition,)),),
        leader_endpoints=(EndQuorumEpochEndpoint(name=VOTER_LISTENER, host=host, port=u16(port)),),
    )
    await _send(channel, request)


async def send_update_raft_voter(channel: Channel, voter: Voter, epoch: int, cluster_id: str | None) -> None:
    """Asks the leader of `epoch` to name the address and versions of `voter` in the voter set.
    Raises OSError, KafkaError.
    """
    host, port = voter.endpoint or ("", 0)
    lowest, highest = voter.kraft_versions
    request = UpdateRaftVoterRequest(
        cluster_id=cluster_id,
        current_leader_epoch=i32(epoch),
        voter_id=i32(voter.broker),
        voter_directory_id=voter.directory,
        listeners=(Listener(name=VOTER_LISTENER, host=host, port=u16(port)),),
        k_raft_version_feature=KRaftVersionFeature(
            min_supported_version=i16(lowest), max_supported_version=i16(highest)
        ),
    )
    await _send(channel, request)


async def request_cluster_id(channel: Channel) -> str:
    """The cluster id of a broker; empty if it belongs to no cluster. Raises KafkaError while it
    starts; ConnectionError.
    """
    response = await _send(
        channel, DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=False)
    )
    return str(response.cluster_id)


async def request_replica(channel: Channel) -> DescribeMetadataReplicaResponse:
    """The metadata replica of a broker, with or without a leader. Raises KafkaError,
    ConnectionError.
    """
    key, request = int(ApiKey.DESCRIBE_METADATA_REPLICA), DescribeMetadataReplicaRequest()
    frame = await channel.send_in_version(key, OWN_VERSION, request)
    response: DescribeMetadataReplicaResponse = channel.read_response(bytes(frame), key, OWN_VERSION)
    if response.error_code is not ErrorCode.none:
        raise KafkaError(response.error_code, response.error_message or "")
    return response


def _milliseconds(number: int) -> i32Timedelta:
    return i32Timedelta.parse(datetime.timedelta(milliseconds=number))
