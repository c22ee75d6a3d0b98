"""Elects the active operator among several: it holds a Lease and renews it.

Invariant: the active operator has renewed the Lease within `LEASE_S` by its own clock. Another
takes over only if the Lease was released or did not change for `LEASE_S` by the other's clock, and
only by a write with the `resourceVersion` that it observed. Clocks are never compared. Two active
operators may still overlap for the length of a request, so every action of the operator follows
from what it observes, and is harmless when repeated.
"""

import asyncio
import datetime
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from ottla_operator.kube.api import CONFLICT, NOT_FOUND, ApiClient, ApiError
from ottla_operator.kube.kinds import LEASE
from ottla_operator.resources.model import Json

LEASE_S: Final = 6.0
RENEW_S: Final = 2.0
RETRY_S: Final = 1.0

log = logging.getLogger("ottla.operator.election")


@dataclass(slots=True)
class LeaderElection:
    """`identity`: unique among operators. The Lease `name` is created in `namespace` if it does not
    exist.
    """

    api: ApiClient
    namespace: str
    name: str
    identity: str
    is_leader: bool = False
    _observed: tuple[str, float] | None = None
    """The Lease's version, and since when it has been observed, by the loop's time."""
    _lost: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def lead(self) -> AsyncIterator[asyncio.Event]:
        """Waits until this operator is the leader. The event is set when it no longer is, and then
        all its work has to stop.
        """
        version = await self._acquire()
        self._lost, self.is_leader = asyncio.Event(), True
        log.info("%s is the active operator now", self.identity)
        renewing = asyncio.create_task(self._renew(version))
        renewing.add_done_callback(self._on_renewing_ended)
        try:
            yield self._lost
        finally:
            self.is_leader = False
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            if not self._lost.is_set():
                await self._release()

    async def _acquire(self) -> str:
        while True:
            try:
                if (version := await self._try_to_acquire()) is not None:
                    return version
            except ApiError as error:
                log.warning("cannot become the active operator: %s", error)
            await asyncio.sleep(RETRY_S)

    async def _try_to_acquire(self) -> str | None:
        """The Lease's version if this operator holds it now; None if another one does."""
        lease = await self.api.get(LEASE, self.namespace, self.name)
        try:
            if lease is None:
                created = {"apiVersion": LEASE.api, "kind": LEASE.name, "spec": self._spec(0)}
                return _version(
                    await self.api.create(created | {"metadata": {"name": self.name, "namespace": self.namespace}})
                )
            spec = lease.get("spec") or {}
            if spec.get("holderIdentity") and spec["holderIdentity"] != self.identity and not self._has_expired(lease):
                return None
            change = {
                "metadata": {"resourceVersion": _version(lease)},
                "spec": self._spec(int(spec.get("leaseTransitions") or 0) + 1),
            }
            return _version(await self.api.merge(LEASE, self.namespace, self.name, change))
        except ApiError as error:
            if error.status == CONFLICT:
                return None
            raise

    def _has_expired(self, lease: Json) -> bool:
        now = asyncio.get_running_loop().time()
        if self._observed is None or self._observed[0] != _version(lease):
            self._observed = _version(lease), now
        return now - self._observed[1] >= LEASE_S

    async def _renew(self, version: str) -> None:
        loop = asyncio.get_running_loop()
        renewed = loop.time()
        while True:
            await asyncio.sleep(RENEW_S)
            began = loop.time()
            change = {
                "metadata": {"resourceVersion": version},
                "spec": {"holderIdentity": self.identity, "renewTime": _now()},
            }
            try:
                async with asyncio.timeout_at(renewed + LEASE_S - RETRY_S):
                    version = _version(await self.api.merge(LEASE, self.namespace, self.name, change))
                renewed = began
            except (ApiError, TimeoutError) as error:
                is_lost = isinstance(error, ApiError) and error.status in (CONFLICT, NOT_FOUND)
                if is_lost or loop.time() >= renewed + LEASE_S - RETRY_S:
                    log.warning("%s is no longer the active operator: %s", self.identity, error or "the lease expired")
                    return

    def _on_renewing_ended(self, renewing: "asyncio.Task[None]") -> None:
        """Called when renewing has ended, for any reason: another operator takes over soon."""
        if renewing.cancelled():
            return
        if (error := renewing.exception()) is not None:
            log.error("%s is no longer the active operator", self.identity, exc_info=error)
        self.is_leader = False
        self._lost.set()

    async def _release(self) -> None:
        """Lets another operator take over at once."""
        try:
            await self.api.merge(LEASE, self.namespace, self.name, {"spec": {"holderIdentity": None}})
        except ApiError as error:
            log.warning("cannot release the lease: %s", error)

    def _spec(self, transitions: int) -> Json:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(LEASE_S),
            "leaseTransitions": transitions,
            "acquireTime": _now(),
            "renewTime": _now(),
        }


def _version(lease: Json) -> str:
    return str(lease["metadata"]["resourceVersion"])


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
