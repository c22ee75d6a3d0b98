"""Ottla's own messages, by which a cluster is recovered after a majority of the voters of its
metadata log was lost.

They are written like kio's classes, in flexible encoding (KIP-482). ApiVersions does not list them:
clients of Kafka do not know their API keys, and clients of Ottla send version 0.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from ottla_broker.wire.api_keys import ApiKey

VERSION: Final = 0


BOOL: Final = {"kafka_type": "bool"}
INT32: Final = {"kafka_type": "int32"}
INT64: Final = {"kafka_type": "int64"}
STRING: Final = {"kafka_type": "string"}
UUID_TYPE: Final = {"kafka_type": "uuid"}
ERROR_CODE: Final = {"kafka_type": "error_code"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeMetadataReplicaRequest:
    __api_key__: ClassVar[int] = ApiKey.DESCRIBE_METADATA_REPLICA
    __version__: ClassVar[int] = VERSION
    __flexible__: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaVoter:
    """A voter of the metadata log, as the replica's log names it. `address`: host:port, empty if it
    is not known.
    """

    __flexible__: ClassVar[bool] = True
    broker_id: int = field(metadata=INT32)
    directory_id: UUID = field(metadata=UUID_TYPE)
    address: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeMetadataReplicaResponse:
    """`address`: at which other brokers reach this one. `cluster_id`: that of the disk; null before
    the broker belongs to a cluster. `previous_cluster_id`: the cluster that this one was recovered
    from, or null. `epoch`: the newest epoch that the replica knows; `leader_id`: −1 without a
    leader. `log_end_epoch`: that of the last record; −1 without one. `voters`: empty while the log
    names none.
    """

    __api_key__: ClassVar[int] = ApiKey.DESCRIBE_METADATA_REPLICA
    __version__: ClassVar[int] = VERSION
    __flexible__: ClassVar[bool] = True
    error_code: ErrorCode = field(metadata=ERROR_CODE)
    error_message: str | None = field(metadata=STRING)
    broker_id: int = field(metadata=INT32)
    directory_id: UUID = field(metadata=UUID_TYPE)
    address: str = field(metadata=STRING)
    cluster_id: str | None = field(metadata=STRING)
    previous_cluster_id: str | None = field(metadata=STRING)
    leader_id: int = field(metadata=INT32)
    epoch: int = field(metadata=INT32)
    log_end_epoch: int = field(metadata=INT32)
    log_end_offset: int = field(metadata=INT64)
    high_watermark: int = field(metadata=INT64)
    voters: tuple[ReplicaVoter, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverQuorumRequest:
    """`directory_id`, `cluster_id`: identify the replica. `new_cluster_id`: the id under which the
    cluster continues. `epoch`: newer than every epoch that a reachable replica knows. `leads`: the
    replica becomes the only voter, keeps its log, and unregisters all brokers but the `survivors`;
    otherwise it copies the log of the leader at `leader_address`.
    """

    __api_key__: ClassVar[int] = ApiKey.RECOVER_QUORUM
    __version__: ClassVar[int] = VERSION
    __flexible__: ClassVar[bool] = True
    directory_id: UUID = field(metadata=UUID_TYPE)
    cluster_id: str = field(metadata=STRING)
    new_cluster_id: str = field(metadata=STRING)
    epoch: int = field(metadata=INT32)
    leads: bool = field(metadata=BOOL)
    leader_address: str = field(metadata=STRING)
    survivors: tuple[int, ...] = field(metadata=INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverQuorumResponse:
    __api_key__: ClassVar[int] = ApiKey.RECOVER_QUORUM
    __version__: ClassVar[int] = VERSION
    __flexible__: ClassVar[bool] = True
    error_code: ErrorCode = field(metadata=ERROR_CODE)
    error_message: str | None = field(metadata=STRING)


MESSAGES: Final[dict[int, tuple[type, type]]] = {
    ApiKey.DESCRIBE_METADATA_REPLICA: (DescribeMetadataReplicaRequest, DescribeMetadataReplicaResponse),
    ApiKey.RECOVER_QUORUM: (RecoverQuorumRequest, RecoverQuorumResponse),
}
"""API key → its request and response."""
