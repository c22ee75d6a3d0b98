"""The integers that hot paths add to."""

from dataclasses import dataclass

API_KEY_LIMIT = 128
"""Above Kafka's largest API key: the size of the list that counts requests by key."""


@dataclass(slots=True)
class PartitionTraffic:
    """Records and bytes of one partition since the broker started, or since its replica was created
    on it.

    `bytes_in` and `bytes_out` count clients, `replication_in` what this broker fetched as a
    follower, `replication_out` what its followers fetched. `produce_requests` counts clients'
    appends that this broker was asked for as the leader, `failed_produce_requests` those that it
    rejected, and `fetch_requests` clients' reads that found records.
    """

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    replication_in: int = 0
    replication_out: int = 0
    produce_requests: int = 0
    failed_produce_requests: int = 0
    fetch_requests: int = 0
    isr_expansions: int = 0
    isr_shrinkages: int = 0
