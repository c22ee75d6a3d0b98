"""How a broker gives up its part in the metadata log before it stops, so that nobody has to wait until it is missed."""

import asyncio
import logging
from collections.abc import Callable

from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.leader_state import LeaderState
from ottla_broker.metadata.register import RegisterError, RegisterValue, Voter
from ottla_broker.metadata.register.steps import is_voter, with_vacant_lead
from ottla_broker.metadata.register_view import RegisterView
from ottla_broker.runtime import Runtime

logger = logging.getLogger(__name__)

SUCCESSION_TIMEOUT_S = 1.0
RESIGNATION_TIMEOUT_S = 1.0
POLL_INTERVAL_S = 0.02
MAJORITY_TIMEOUT_S = 0.6  # members ask more often than that


class Resignation:
    """`newest`: what is known of the register, by whatever way."""

    def __init__(
        self,
        me: Voter,
        image: MetadataImage,
        view: RegisterView,
        runtime: Runtime,
        newest: Callable[[], RegisterValue | None],
    ) -> None:
        self._me = me
        self._image = image
        self._view = view
        self._runtime = runtime
        self._latest_value = newest

    async def hand_over_leadership(self, leadership: LeaderState | None) -> None:
        """A leader that others can succeed says so, and leads on until one of them does, or none is left to do it."""
        try:
            if leadership is not None and len(leadership.voter_sets[0]) > 1:
                await self.resign_leadership(leadership.epoch)
                async with asyncio.timeout(SUCCESSION_TIMEOUT_S):
                    while not leadership.is_over and leadership.hears_majority(MAJORITY_TIMEOUT_S):
                        await leadership.wait_for_change(MAJORITY_TIMEOUT_S / 10)
        except TimeoutError:
            logger.info("nobody took over the metadata log within %g s", SUCCESSION_TIMEOUT_S)
        await self._wait_until_removed()

    async def resign_leadership(self, epoch: int) -> None:
        """Says in the register that the lead of `epoch` is vacant, if it can be reached and still says that epoch."""

        def resign(value: RegisterValue | None) -> RegisterValue | None:
            return (
                with_vacant_lead(value, self._runtime.now_ms()) if value is not None and value.epoch == epoch else None
            )

        try:
            async with asyncio.timeout(RESIGNATION_TIMEOUT_S):
                await self._view.update(resign)
        except (RegisterError, TimeoutError) as reason:
            logger.info("could not resign from the metadata log's lead: %s", reason)

    async def _wait_until_removed(self) -> None:
        """Of two members, one that stops stays until the other one has taken it out, without which that one could commit nothing; but not
        for one that is gone or stops as well."""
        try:
            async with asyncio.timeout(SUCCESSION_TIMEOUT_S):
                while self._is_needed_for_majority():  # noqa: ASYNC110  # what is looked at has several sources
                    await asyncio.sleep(POLL_INTERVAL_S)
        except TimeoutError:
            logger.info("the metadata log's other member did not go on alone within %g s", SUCCESSION_TIMEOUT_S)

    def _is_needed_for_majority(self) -> bool:
        known = self._latest_value()
        if known is None or len(known.isr) != 2 or not is_voter(known, self._me):
            return False
        (other,) = (member.broker for member in known.isr if member.broker != self._me.broker)
        registered = self._image.brokers.get(other)
        return registered is not None and not registered.fenced and not registered.shutting_down
