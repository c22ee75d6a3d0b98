"""Telling a broker who leads the metadata log: BeginQuorumEpoch (53), which Kafka's own quorum has for it."""

import asyncio
import logging

from kio.schema.begin_quorum_epoch.v1.request import BeginQuorumEpochRequest, LeaderEndpoint, PartitionData, TopicData
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32, u16

from ottla_broker.metadata.log_fetcher import connect_to_peer, parse_host_and_port
from ottla_broker.metadata.records import METADATA_TOPIC
from ottla_broker.metadata.register import RegisterValue, Voter
from ottla_broker.metadata.register.steps import address_of
from ottla_broker.wire.errors import KafkaError

logger = logging.getLogger(__name__)

LISTENER = "BROKERS"
RESPONSE_TIMEOUT_S = 1.0


async def send_begin_quorum_epoch(address: str, client_id: str, leader: Voter, epoch: int) -> None:
    """Returns when the broker at `address` has promised `epoch`. OSError, TimeoutError, KafkaError."""
    host, port = parse_host_and_port(leader.address)
    told = PartitionData(
        partition_index=i32(0), voter_directory_id=None, leader_id=BrokerId(leader.broker), leader_epoch=i32(epoch)
    )
    request = BeginQuorumEpochRequest(
        topics=(TopicData(topic_name=TopicName(METADATA_TOPIC), partitions=(told,)),),
        leader_endpoints=(LeaderEndpoint(name=LISTENER, host=host, port=u16(port)),),
    )
    channel = await connect_to_peer(address, client_id)
    try:
        async with asyncio.timeout(RESPONSE_TIMEOUT_S):
            await channel.send(request)
    finally:
        channel.close()


async def notify_former_leader(former: RegisterValue, newest: RegisterValue, client_id: str) -> None:
    """Who led before is told who leads now: it may hear neither its successor nor the register, and would believe itself for a while (rule 6). Once, if it
    can be reached."""
    leader = next((member for member in newest.isr if member.broker == newest.leader), None)
    if leader is None or not (address := address_of(former, former.leader)):
        return
    try:
        await send_begin_quorum_epoch(address, client_id, leader, newest.epoch)
    except (OSError, TimeoutError, KafkaError) as reason:
        logger.debug("broker %d does not hear that it leads no more: %s", former.leader, reason)
