"""The marker that a transaction coordinator sends to the partitions of a transaction to end it."""

from typing import NamedTuple


class TransactionMarker(NamedTuple):
    """`producer_epoch`: in protocol 2 larger than that of the transaction's batches.
    `coordinator_epoch`: the leader epoch of the coordinator's partition; a partition refuses
    markers of a smaller epoch, which a former coordinator sends.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int
