"""Steps of an election through the register: before a broker creates a cluster, before it leads, and when it resigns."""

import asyncio
import logging
from collections.abc import Callable

from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.leader_state import LeaderState
from ottla_broker.metadata.log_fetcher import connect_to_peer
from ottla_broker.metadata.quorum_rules import Voter, election_quorum_size
from ottla_broker.metadata.register import RegisterError, RegisterValue
from ottla_broker.metadata.register_view import RegisterView
from ottla_broker.runtime import Runtime
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

SUCCESSION_TIMEOUT_S = 1.0
RESIGNATION_TIMEOUT_S = 1.0
POLL_INTERVAL_S = 0.02
MAJORITY_TIMEOUT_S = 0.6  # voters fetch more often


def check_may_create_cluster(known: RegisterValue | None, me: Voter) -> None:
    """INCONSISTENT_CLUSTER_ID when the register is empty but was not always: it was lost, and only a broker that was
    the only voter can create it again."""
    if known is None:
        return
    others = ", ".join(str(voter.broker) for voter in known.isr if voter.key != me.key)
    if others:
        raise KafkaError(
            ErrorCode.inconsistent_cluster_id,
            f"the register of cluster {known.cluster_id} is empty, and broker {others} may have metadata that this broker "
            "lacks: restore the register",
        )


def check_cluster_id(own_cluster_id: str | None, value: RegisterValue) -> None:
    """INCONSISTENT_CLUSTER_ID when the log directory belongs to another cluster than the register."""
    if own_cluster_id not in (None, value.cluster_id):
        raise KafkaError(
            ErrorCode.inconsistent_cluster_id,
            f"the log directory belongs to cluster {own_cluster_id}, but the register to cluster {value.cluster_id}",
        )


async def can_reach_election_quorum(value: RegisterValue, me: Voter, client_id: str) -> bool:
    """True if enough voters accept connections for this broker to lead. One that cannot would only delay others."""
    missing = election_quorum_size(len(value.isr)) - 1
    others = [voter for voter in value.isr if voter.key != me.key and voter.address]
    attempts = [asyncio.ensure_future(_can_connect(voter, client_id)) for voter in others if missing > 0]
    try:
        for attempt in asyncio.as_completed(attempts):
            missing -= await attempt
            if missing <= 0:
                break
        return missing <= 0
    finally:
        for task in attempts:
            task.cancel()


async def _can_connect(voter: Voter, client_id: str) -> bool:
    try:
        async with connect_to_peer(voter, client_id):
            return True
    except (OSError, KafkaError):
        return False


class Resignation:
    """Gives up this broker's part in the quorum before it stops, so that the others need not wait for a timeout.
    `latest_value`: the newest value of the register that this broker knows."""

    def __init__(
        self,
        me: Voter,
        image: MetadataImage,
        register_view: RegisterView,
        runtime: Runtime,
        latest_value: Callable[[], RegisterValue | None],
    ) -> None:
        self._me = me
        self._image = image
        self._register_view = register_view
        self._runtime = runtime
        self._latest_value = latest_value

    async def hand_over_leadership(self, leader_state: LeaderState | None) -> None:
        """A leader with other voters resigns, and leads on until one of them leads or none of them fetches."""
        try:
            if leader_state is not None and len(leader_state.voters) > 1:
                await self.resign_leadership(leader_state.epoch)
                async with asyncio.timeout(SUCCESSION_TIMEOUT_S):
                    while not leader_state.is_over and leader_state.hears_majority(MAJORITY_TIMEOUT_S):
                        await leader_state.wait_for_change(MAJORITY_TIMEOUT_S / 10)
        except TimeoutError:
            logger.info("no other voter became leader of the metadata log within %g s", SUCCESSION_TIMEOUT_S)
        await self._wait_until_removed()

    async def resign_leadership(self, epoch: int) -> None:
        """Marks the lead of `epoch` as vacant, if the register can be reached and still names that epoch."""

        def vacate(value: RegisterValue | None) -> RegisterValue | None:
            if value is None or value.epoch != epoch:
                return None
            return value.with_vacant_lead(self._runtime.now_ms())

        try:
            async with asyncio.timeout(RESIGNATION_TIMEOUT_S):
                await self._register_view.update(vacate)
        except (RegisterError, TimeoutError) as reason:
            logger.info("failed to resign as leader of the metadata log: %s", reason)

    async def _wait_until_removed(self) -> None:
        """Of two voters, one that stops waits until the other has removed it, because the other could commit nothing
        alone. It does not wait for one that is fenced or stops as well."""
        try:
            async with asyncio.timeout(SUCCESSION_TIMEOUT_S):
                while self._is_needed_for_majority():  # noqa: ASYNC110  # the condition has several sources
                    await asyncio.sleep(POLL_INTERVAL_S)
        except TimeoutError:
            logger.info("the other voter did not remove this broker within %g s", SUCCESSION_TIMEOUT_S)

    def _is_needed_for_majority(self) -> bool:
        value = self._latest_value()
        if value is None or len(value.isr) != 2 or not value.has_voter(self._me):
            return False
        (other,) = (voter.broker for voter in value.isr if voter.broker != self._me.broker)
        registered = self._image.brokers.get(other)
        return registered is not None and not registered.fenced and not registered.shutting_down
