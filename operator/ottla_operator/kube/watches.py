"""Watches resources and what they own by kopf, and passes the changes to the controller.

kopf is used for watching alone: its change handlers, daemons and timers would write annotations and
finalizers on resources, and a finalizer blocks the deletion of a namespace whose operator is gone.
The operator's image has no Kubernetes client library: kopf would import it and use tens of
megabytes.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, cast

import kopf

from ottla_operator.kube.api import ApiClient, ApiError, Login
from ottla_operator.kube.kinds import (
    ACCESS_POLICY,
    CLUSTER,
    GROUP,
    MIRROR,
    PIPELINE,
    POD,
    SCHEMA,
    SERVICE,
    STATEFUL_SET,
    TOPIC,
    USER,
    ObjectKind,
)
from ottla_operator.plan.objects.names import FIELD_MANAGER, INSTANCE
from ottla_operator.plan.pipeline import names as pipeline_names
from ottla_operator.reconcile.controller import Controller
from ottla_operator.reconcile.watch_cache import Key
from ottla_operator.resources.model import Json

CRD_RETRY_S: Final = 2.0
COMPLETE_POLL_S: Final = 0.5
RELIST_S: Final = 60.0
RESOURCES: Final = (CLUSTER, TOPIC, GROUP, SCHEMA, PIPELINE, MIRROR, USER, ACCESS_POLICY)
OWNED: Final = (POD, SERVICE, STATEFUL_SET)
log = logging.getLogger("ottla.operator")


class Watches:
    """`namespaces`: namespaces to watch; empty for all. `identity`: this operator's identity."""

    def __init__(
        self, api: ApiClient, controller: Controller, namespaces: Sequence[str], login: Login, identity: str
    ) -> None:
        self.api = api
        self.controller = controller
        self.namespaces = namespaces
        self._login = login
        self._identity = identity
        self._outdated: dict[str, str | None] = {}
        """uid → cached version (None: not cached) of resources that the last `relist` found
        outdated in the cache.
        """

    async def run(self, stop: asyncio.Event) -> None:
        """Waits for the CRDs, then watches until `stop`."""
        registry = kopf.OperatorRegistry()
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        settings.scanning.disabled = True  # it would need rights on all CRDs and namespaces
        settings.peering.standalone = True
        settings.watching.server_timeout = 300
        settings.watching.client_timeout = 330
        for kind in OWNED:
            settings.watching.label_selectors[_selector(kind)] = f"app.kubernetes.io/managed-by={FIELD_MANAGER}"
        self._register(registry)
        await self._wait_for_crds(stop)
        if stop.is_set():
            return
        await kopf.operator(
            registry=registry,
            settings=settings,
            namespaces=self.namespaces,
            clusterwide=not self.namespaces,
            stop_flag=stop,
            identity=cast(Any, self._identity),  # kopf would look up the user's name, and a container's user has none
        )

    async def wait_until_complete(self) -> None:
        """Returns once the cache has every resource that exists."""
        while True:
            try:
                existing = await self._list_resources()
                if existing.keys() <= {it["metadata"]["uid"] for it in self.controller.cache.all()}:
                    return
            except (ApiError, kopf.LoginError) as error:
                log.warning("cannot list resources to complete the watch cache: %s", error)
            await asyncio.sleep(COMPLETE_POLL_S)

    async def relist_periodically(self) -> None:
        while True:
            try:
                await self.relist()
            except (ApiError, kopf.LoginError) as error:
                log.warning("cannot list resources to correct the watch cache: %s", error)
            except Exception:  # a bug must not end this forever
                log.exception("bug while correcting the watch cache")
            await asyncio.sleep(RELIST_S)

    async def relist(self) -> None:
        """Lists what exists, and corrects the cache. Raises ApiError, kopf.LoginError.

        A watch that was cut off for too long begins again with what exists then. kopf does not
        report what was deleted in between, and the objects of such resources would be created again
        and again. What a watch has not shown is fetched if the cache still has the same outdated
        version at the next call.
        """
        cached = {it["metadata"]["uid"]: it for it in self.controller.cache.all()}
        versions = {uid: it["metadata"].get("resourceVersion") for uid, it in cached.items()}
        existing = await self._list_resources()
        for uid in cached.keys() - existing.keys():
            self.controller.forget(cached[uid])
        outdated = {
            uid: versions.get(uid)
            for uid, (_, metadata) in existing.items()
            if versions.get(uid) != metadata["resourceVersion"]
        }
        for uid in [uid for uid, version in outdated.items() if self._outdated.get(uid, "") == version]:
            kind, metadata = existing[uid]
            if (body := await self.api.get(kind, metadata["namespace"], metadata["name"])) is not None:
                self.controller.update(body)
        self._outdated = outdated

    async def _list_resources(self) -> dict[str, tuple[ObjectKind, Json]]:
        """Kind and metadata of existing resources, by uid. Raises ApiError, kopf.LoginError."""
        queries = [(kind, namespace) for kind in RESOURCES for namespace in self.namespaces or (None,)]
        answers = await asyncio.gather(*(self.api.list_metadata(*it) for it in queries))
        return {
            metadata["uid"]: (kind, metadata)
            for (kind, _), found in zip(queries, answers, strict=True)
            for metadata in found
        }

    async def _wait_for_crds(self, stop: asyncio.Event) -> None:
        """Returns once all CRDs exist, or at `stop`. kopf never looks again for a kind that did not
        exist when it started.
        """
        while not stop.is_set():
            try:
                missing = [it.plural for it in RESOURCES if not await self.api.serves(it)]
                if not missing:
                    return
                log.warning("waiting for the CRDs of %s", ", ".join(missing))
            except ApiError as error:
                log.warning("%s", error)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), CRD_RETRY_S)

    def _register(self, registry: kopf.OperatorRegistry) -> None:
        @kopf.on.login(registry=registry)
        def credentials(**_: object) -> kopf.ConnectionInfo:
            return self._login()

        def on(kind: ObjectKind) -> Callable[..., Any]:
            return kopf.on.event(*_selector(kind), registry=registry, id=kind.plural)

        async def on_resource(body: kopf.Body, type: str | None, **_: object) -> None:
            self.controller.update(body, is_deleted=type == "DELETED")

        async def on_owned_object(labels: kopf.Labels, namespace: str | None, **_: object) -> None:
            self._wake_owner(labels, namespace or "")

        for kind in RESOURCES:
            on(kind)(on_resource)
        for kind in OWNED:
            on(kind)(on_owned_object)

    def _wake_owner(self, labels: Mapping[str, str], namespace: str) -> None:
        key = Key(namespace, labels.get(INSTANCE, ""))
        if labels.get(pipeline_names.COMPONENT) in pipeline_names.POD_COMPONENTS:
            self.controller.wake_pipeline(key)
        else:
            self.controller.wake_cluster(key)


def _selector(kind: ObjectKind) -> tuple[str, str, str]:
    group, _, version = kind.api.rpartition("/")
    return group, version, kind.plural
