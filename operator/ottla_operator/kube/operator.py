"""The parts of `ottla operator` and their connections: watches fill the cache, one of several
operators is elected, and its controller reconciles.
"""

import asyncio
import os
import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import kopf

from ottla_operator.kube.api import ApiClient, Login
from ottla_operator.kube.leader_election import LeaderElection
from ottla_operator.kube.metrics import Metrics, serve
from ottla_operator.kube.platform import KubePlatform
from ottla_operator.kube.watches import Watches
from ottla_operator.plan.objects.broker_pod import BrokerImages
from ottla_operator.plan.pipeline.pods import PipelineImage
from ottla_operator.reconcile.controller import Controller
from ottla_operator.reconcile.watch_cache import WatchCache

LoginError = kopf.LoginError


def log_in() -> kopf.ConnectionInfo:
    """The pod's service account; outside of a pod the kubeconfig's current context. Raises
    LoginError without either.
    """
    settings = kopf.OperatorSettings()
    found = kopf.login_with_service_account(settings=settings) or kopf.login_with_kubeconfig(settings=settings)
    if found is None:
        raise LoginError("no credentials for the API server: neither a service account's token nor a kubeconfig")
    return found


@dataclass(frozen=True, slots=True)
class OperatorOptions:
    """`namespaces`: namespaces to watch; empty for all. `lease_namespace`, `lease_name`: the Lease
    that elects the active operator. `http_listener`: address that serves health and metrics; None
    for none.
    """

    namespaces: Sequence[str]
    lease_namespace: str
    lease_name: str
    images: BrokerImages
    pipeline_image: PipelineImage
    http_listener: tuple[str, int] | None


class Operator:
    """One replica of the operator. Only the elected one reconciles."""

    def __init__(self, options: OperatorOptions, login: Login = log_in) -> None:
        identity = f"{os.environ.get('POD_NAME') or socket.gethostname()}-{uuid.uuid4().hex[:6]}"
        cache = WatchCache()
        self.options = options
        self.metrics = Metrics(cache.count)
        self.api = ApiClient(login, self.metrics.count_write)
        platform = KubePlatform(self.api, cache, identity, options.images, options.pipeline_image)
        self.controller = Controller(platform, cache, self.metrics.count_reconcile)
        self.watches = Watches(self.api, self.controller, options.namespaces, login, identity)
        self.election = LeaderElection(self.api, options.lease_namespace, options.lease_name, identity)

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop`, or until watching or the election fails; then sets `stop` and raises
        the error. A standby operator watches too, so that its cache is complete when it takes over.
        """
        http = await serve(self.metrics, *self.options.http_listener) if self.options.http_listener else None
        watching = asyncio.create_task(self.watches.run(stop))
        leading = asyncio.create_task(self._lead())
        completing = asyncio.create_task(self.report_ready())
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((watching, leading, stopped), return_when=asyncio.FIRST_COMPLETED)
            for task in (watching, leading):
                if task.done():
                    task.result()
        finally:
            stop.set()
            leading.cancel()
            completing.cancel()
            stopped.cancel()
            await asyncio.gather(leading, completing, watching, stopped, return_exceptions=True)
            if http is not None:
                await http.cleanup()
            await self.api.close()

    async def report_ready(self) -> None:
        """Reports readiness once the cache is complete."""
        await self.watches.wait_until_complete()
        self.metrics.is_ready = True

    async def _lead(self) -> None:
        """Reconciles whenever this operator is the leader."""
        while True:
            async with self.election.lead() as lost:
                self.metrics.is_active = True
                self.controller.start()
                relisting = asyncio.create_task(self.watches.relist_periodically())
                try:
                    await lost.wait()
                finally:
                    self.metrics.is_active = False
                    relisting.cancel()
                    await self.controller.stop()
