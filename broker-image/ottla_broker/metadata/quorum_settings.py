"""The settings of the metadata quorum, as one value."""

import msgspec
from msgspec.structs import replace

from ottla_broker.config import (
    CLUSTER_FOUND,
    CONTROLLER_QUORUM_ELECTION_BACKOFF_MAX_MS,
    CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS,
    CONTROLLER_QUORUM_FETCH_TIMEOUT_MS,
    CONTROLLER_QUORUM_VOTER_COUNT,
    Config,
)
from ottla_broker.metadata.raft_rules import ElectionTimeouts
from ottla_broker.metadata.voter_set import QuorumEndpoint, parse_endpoint


class QuorumSettings(msgspec.Struct, frozen=True):
    """`may_found`: cluster.found. `listener`: the name of the inter-broker listener."""

    bootstrap_servers: tuple[QuorumEndpoint, ...]
    may_found: bool
    max_voters: int
    timeouts: ElectionTimeouts
    listener: str

    @classmethod
    def from_config(cls, config: Config) -> "QuorumSettings":
        return cls(
            config.quorum_bootstrap_servers,
            config(CLUSTER_FOUND),
            config(CONTROLLER_QUORUM_VOTER_COUNT),
            ElectionTimeouts(
                config(CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS) / 1000,
                config(CONTROLLER_QUORUM_FETCH_TIMEOUT_MS) / 1000,
                config(CONTROLLER_QUORUM_ELECTION_BACKOFF_MAX_MS) / 1000,
            ),
            config.inter_broker_listener,
        )

    def with_bootstrap_server(self, address: str) -> "QuorumSettings":
        """`address`: host:port of another broker that is asked for the leader."""
        endpoint = parse_endpoint(address)
        return self if endpoint is None else replace(self, bootstrap_servers=(*self.bootstrap_servers, endpoint))
