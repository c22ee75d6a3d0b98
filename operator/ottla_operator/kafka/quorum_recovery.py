"""Requests to single brokers that need neither a leader nor a ready broker (Ottla's own APIs):
describe a broker's replica of the metadata log, and recover it.
"""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any, Final

from ottla_broker.runtime import uuid_from_text, uuid_text
from ottla_broker.wire.channel import Channel, open_channel
from ottla_broker.wire.client import parse_bootstrap_servers
from ottla_broker.wire.client_security import UNSECURED, ClientSecurity
from ottla_broker.wire.codec import read_response
from ottla_broker.wire.errors import KafkaError, describe_os_error
from ottla_broker.wire.recovery_messages import (
    VERSION,
    DescribeMetadataReplicaRequest,
    DescribeMetadataReplicaResponse,
    RecoverQuorumRequest,
)
from ottla_operator.kafka.client import InvalidAddress, Unreachable, raise_for_error
from ottla_operator.plan.quorum_recovery import MetadataReplica, Recovery, VoterKey

TIMEOUT_S: Final = 5.0


async def describe_replicas(
    addresses: Collection[str], security: ClientSecurity = UNSECURED, timeout_s: float = TIMEOUT_S
) -> dict[str, MetadataReplica | str]:
    """Returns address → the replica there, or the reason why there is none. `addresses`: host:port.
    Raises InvalidAddress.
    """
    parsed = {address: _parse(address) for address in addresses}
    found = await asyncio.gather(*(_describe(*parsed[it], it, security, timeout_s) for it in parsed))
    return dict(zip(parsed, found, strict=True))


async def describe_all_replicas(
    addresses: Collection[str], security: ClientSecurity = UNSECURED
) -> dict[str, MetadataReplica | str]:
    """Describes the replicas at these addresses, and at the addresses of other voters that those
    replicas know. Raises InvalidAddress."""
    found = await describe_replicas(addresses, security)
    replicas = [it for it in found.values() if isinstance(it, MetadataReplica)]
    known = {it.broker for it in replicas}
    more = {voter.address for it in replicas for voter in it.voters if voter.broker not in known and voter.address}
    return {**found, **await describe_replicas(more - found.keys(), security)}


async def recover_replica(recovery: Recovery, replica: MetadataReplica, security: ClientSecurity = UNSECURED) -> None:
    """Restarts the broker as a part of the recovered cluster. Raises KafkaError and Unreachable."""
    assert replica.cluster_id is not None, "a replica without a cluster joins one by itself"
    request = RecoverQuorumRequest(
        directory_id=uuid_from_text(replica.directory),
        cluster_id=replica.cluster_id,
        new_cluster_id=recovery.cluster_id,
        epoch=recovery.epoch,
        leads=replica is recovery.leader,
        leader_address=recovery.leader.inter_broker_address,
        survivors=recovery.survivors,
    )
    try:
        response = await _send(*_parse(replica.address), request, security)
    except (OSError, TimeoutError) as error:
        raise Unreachable(f"broker {replica.broker} at {replica.address}: {_reason(error)}") from error
    raise_for_error(response.error_code, response.error_message, f"broker {replica.broker}")


async def _describe(
    host: str, port: int, address: str, security: ClientSecurity, timeout_s: float
) -> MetadataReplica | str:
    try:
        response = await _send(host, port, DescribeMetadataReplicaRequest(), security, timeout_s)
        raise_for_error(response.error_code, response.error_message, f"broker at {address}")
    except (OSError, TimeoutError, KafkaError) as error:
        return _reason(error)
    return _replica(response, address)


def _replica(response: DescribeMetadataReplicaResponse, address: str) -> MetadataReplica:
    return MetadataReplica(
        broker=response.broker_id,
        directory=uuid_text(response.directory_id),
        address=address,
        cluster_id=response.cluster_id,
        previous_cluster_id=response.previous_cluster_id,
        leader=response.leader_id,
        epoch=response.epoch,
        log_end=(response.log_end_epoch, response.log_end_offset),
        high_watermark=response.high_watermark,
        voters=tuple(VoterKey(it.broker_id, uuid_text(it.directory_id), it.address) for it in response.voters),
        inter_broker_address=response.address,
    )


async def _send(host: str, port: int, request: Any, security: ClientSecurity, timeout_s: float = TIMEOUT_S) -> Any:
    async with asyncio.timeout(timeout_s), _open(host, port, security) as channel:
        key = int(request.__api_key__)
        return read_response(bytes(await channel.send_in_version(key, VERSION, request)), key, VERSION)


@asynccontextmanager
async def _open(host: str, port: int, security: ClientSecurity) -> AsyncIterator[Channel]:
    channel = await open_channel(host, port, "ottla", security=security)
    try:
        yield channel
    finally:
        channel.close()


def _parse(address: str) -> tuple[str, int]:
    try:
        return parse_bootstrap_servers(address)[0]
    except ValueError as error:
        raise InvalidAddress(str(error)) from error


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no response in time"
    return describe_os_error(error) if isinstance(error, OSError) else str(error)
