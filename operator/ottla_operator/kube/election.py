"""Which of several operators is active: the one that holds a Lease, and renews it.

Invariant: whoever is active has renewed within `LEASE_S` by its own clock; another takes over only after it has seen the Lease unchanged for `LEASE_S` by
its clock, and only by a write that names the version it saw. Clocks are never compared. Two may still overlap for the length of a request: whatever the
operator does is therefore decided anew from what is seen, and harmless when it is done twice.
"""

import asyncio
import datetime
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from ottla_operator.kube.api import CONFLICT, Api, ApiError
from ottla_operator.kube.kinds import LEASE
from ottla_operator.resources.model import Json

LEASE_S: Final = 6.0
RENEW_S: Final = 2.0
LOOK_S: Final = 1.0

log = logging.getLogger("ottla.operator.election")


@dataclass(slots=True)
class Election:
    """`who`: unlike any other's. The Lease `name` is made in `namespace` when it is not there."""

    api: Api
    namespace: str
    name: str
    who: str
    active: bool = False
    _seen: tuple[str, float] | None = None
    """The version last seen, and since when, by the loop's time."""
    _lost: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def elected(self) -> AsyncIterator[asyncio.Event]:
        """Waits until we are active. The event is set when we no longer are: what was begun has to stop then."""
        version = await self._won()
        self._lost, self.active = asyncio.Event(), True
        log.info("%s is the active operator", self.who)
        renewing = asyncio.create_task(self._renew(version))
        renewing.add_done_callback(self._renews_no_longer)
        try:
            yield self._lost
        finally:
            self.active = False
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            if not self._lost.is_set():
                await self._resign()

    async def _won(self) -> str:
        while True:
            try:
                if (version := await self._try()) is not None:
                    return version
            except ApiError as error:
                log.warning("cannot become active: %s", error)
            await asyncio.sleep(LOOK_S)

    async def _try(self) -> str | None:
        """The Lease's version when it became ours."""
        lease = await self.api.get(LEASE, self.namespace, self.name)
        try:
            if lease is None:
                made = {"apiVersion": LEASE.api, "kind": LEASE.name, "spec": self._spec(0)}
                return _version(
                    await self.api.create(made | {"metadata": {"name": self.name, "namespace": self.namespace}})
                )
            spec = lease.get("spec") or {}
            if spec.get("holderIdentity") and spec["holderIdentity"] != self.who and not self._is_over(lease):
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

    def _is_over(self, lease: Json) -> bool:
        now = asyncio.get_running_loop().time()
        if self._seen is None or self._seen[0] != _version(lease):
            self._seen = _version(lease), now
        return now - self._seen[1] >= LEASE_S

    async def _renew(self, version: str) -> None:
        loop = asyncio.get_running_loop()
        renewed = loop.time()
        while True:
            await asyncio.sleep(RENEW_S)
            began = loop.time()
            change = {
                "metadata": {"resourceVersion": version},
                "spec": {"holderIdentity": self.who, "renewTime": _now()},
            }
            try:
                async with asyncio.timeout_at(renewed + LEASE_S - LOOK_S):
                    version = _version(await self.api.merge(LEASE, self.namespace, self.name, change))
                renewed = began
            except (ApiError, TimeoutError) as error:
                gone = isinstance(error, ApiError) and error.status in (CONFLICT, 404)
                if gone or loop.time() >= renewed + LEASE_S - LOOK_S:
                    log.warning("%s is no longer the active operator: %s", self.who, error or "the lease ran out")
                    return

    def _renews_no_longer(self, renewing: "asyncio.Task[None]") -> None:
        """Whatever ended it: another takes over before long."""
        if renewing.cancelled():
            return
        if (error := renewing.exception()) is not None:
            log.error("%s is no longer the active operator", self.who, exc_info=error)
        self.active = False
        self._lost.set()

    async def _resign(self) -> None:
        """So that another takes over at once."""
        try:
            await self.api.merge(LEASE, self.namespace, self.name, {"spec": {"holderIdentity": None}})
        except ApiError as error:
            log.warning("cannot resign: %s", error)

    def _spec(self, transitions: int) -> Json:
        return {
            "holderIdentity": self.who,
            "leaseDurationSeconds": int(LEASE_S),
            "leaseTransitions": transitions,
            "acquireTime": _now(),
            "renewTime": _now(),
        }


def _version(lease: Json) -> str:
    return str(lease["metadata"]["resourceVersion"])


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
