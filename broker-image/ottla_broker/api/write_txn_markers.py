"""WriteTxnMarkers (27), versions 1–2.

- Writes the markers that end transactions to partitions that this broker leads. Transaction
  coordinators send it, and so does `kafka-transactions.sh abort`, which ends a transaction that
  hangs.
- Needs ClusterAction, or Alter on the cluster.
- v2 adds the transaction version: with version 2 a marker's epoch must be larger than that of the
  transaction (KIP-1228), and one that is in the log already is acknowledged.
"""

import asyncio
from collections.abc import Iterable
from itertools import groupby
from typing import cast

from kio.schema.types import TopicName
from kio.schema.write_txn_markers.v2.request import WritableTxnMarker, WriteTxnMarkersRequest
from kio.schema.write_txn_markers.v2.response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from kio.static.primitive import i32

from ottla_broker.requests.api import CHECK_NEXT, Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.security.authorizer import CLUSTER, Operation, ResourceType
from ottla_broker.transactions.marker_writer import TransactionMarker
from ottla_broker.transactions.transaction_metadata import TxnPartition
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode

API = Api(
    ApiKey.WRITE_TXN_MARKERS,
    versions=(1, 2),
    flexible=1,
    rights=(
        Right(Operation.alter, ResourceType.cluster, refused=CHECK_NEXT),
        Right(Operation.cluster_action, ResourceType.cluster),
    ),
)


@API.handler()
async def write_markers(ctx: RequestContext, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    is_allowed = ctx.may(Operation.alter, CLUSTER) or ctx.is_authorized(Operation.cluster_action, CLUSTER)
    return WriteTxnMarkersResponse(
        markers=tuple(await asyncio.gather(*(write_marker(ctx, marker, is_allowed) for marker in request.markers)))
    )


async def write_marker(ctx: RequestContext, requested: WritableTxnMarker, is_allowed: bool) -> WritableTxnMarkerResult:
    partitions = [
        TxnPartition(topic.name, int(index)) for topic in requested.topics for index in topic.partition_indexes
    ]
    marker = TransactionMarker(
        int(requested.producer_id),
        int(requested.producer_epoch),
        int(requested.coordinator_epoch),
        requested.transaction_result,
        int(requested.transaction_version),
    )
    if is_allowed:
        writer = ctx.broker.transactions.marker_writer
        codes = await asyncio.gather(*(writer.write_marker(at, marker) for at in partitions))
    else:
        codes = [ErrorCode.cluster_authorization_failed] * len(partitions)
    return WritableTxnMarkerResult(
        producer_id=requested.producer_id, topics=tuple(build_topic_results(zip(partitions, codes, strict=True)))
    )


def build_topic_results(
    results: Iterable[tuple[TxnPartition, ErrorCode]],
) -> Iterable[WritableTxnMarkerTopicResult]:
    for name, of_topic in groupby(results, key=lambda one: one[0].topic):
        yield WritableTxnMarkerTopicResult(
            name=TopicName(name),
            partitions=tuple(
                WritableTxnMarkerPartitionResult(partition_index=cast(i32, at.partition), error_code=code)
                for at, code in of_topic
            ),
        )
