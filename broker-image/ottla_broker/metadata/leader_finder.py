"""Asks other brokers for the leader of the metadata log, and logs why none is known."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.config.addresses import format_host_and_port
from ottla_broker.metadata.metadata_fetch import LeaderAndEpoch
from ottla_broker.metadata.metadata_log import MetadataLog
from ottla_broker.metadata.quorum_peers import QuorumPeers
from ottla_broker.metadata.voter_candidates import brokers_as_voters
from ottla_broker.metadata.voter_set import Voter, majority_size
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

LOG_INTERVAL_S: Final = 10.0


@dataclass(eq=False, repr=False)
class LeaderFinder:
    """`_listener`: the name of the inter-broker listener. `_observe` is called with each leader
    that another broker names."""

    _peers: QuorumPeers
    _log: MetadataLog
    _listener: str
    _observe: Callable[[LeaderAndEpoch], Awaitable[None]]
    _logged_s: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    async def ask(self, cluster_id: str | None) -> KafkaError | None:
        """Asks the other brokers in turn. Returns INCONSISTENT_CLUSTER_ID if each of them belongs
        to another cluster than `cluster_id`, else None. Raises what `check_not_recovered` and
        `_observe` raise.

        `cluster_id` None: this broker's disk belongs to no cluster yet. The broker joins any
        cluster that has a leader.
        """
        cluster_errors: list[KafkaError] = []
        known = (*self._log.voters.latest, *brokers_as_voters(self._log.image, self._listener))
        endpoints = self._peers.endpoints(known)
        for endpoint in endpoints:
            try:
                leader = await self._peers.find_leader(endpoint)
            except (OSError, KafkaError) as reason:
                if isinstance(reason, KafkaError) and reason.code is ErrorCode.inconsistent_cluster_id:
                    if cluster_id is None:
                        self._peers.cluster_id = None
                        continue
                    await self._peers.check_not_recovered(endpoint)
                    cluster_errors.append(reason)
                continue
            if leader is not None:
                await self._observe(leader)
        if cluster_errors and len(cluster_errors) == len(endpoints):
            return cluster_errors[0]
        if self._may_log():
            addresses = ", ".join(format_host_and_port(*endpoint) for endpoint in endpoints) or "nobody"
            logger.info("broker %d knows no leader of the metadata log; asking %s", self._peers.me.broker, addresses)
        return None

    def log_missing_majority(self, others: Sequence[Voter]) -> None:
        """Logs which voters prevent the election of this broker. `others`: all other voters."""
        failures = {voter.broker: self._peers.failures.get(voter.broker, "") for voter in others}
        missing = [f"broker {broker} {why}" for broker, why in failures.items() if why]
        is_majority = len(others) + 1 - len(missing) >= majority_size(len(others) + 1)
        if not is_majority and self._may_log():
            logger.warning("no majority of the voters of the metadata log answers: %s", "; ".join(missing))

    def _may_log(self) -> bool:
        """False within LOG_INTERVAL_S of the last time that it was true."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._logged_s < LOG_INTERVAL_S:
            return False
        self._logged_s = now_s
        return True
