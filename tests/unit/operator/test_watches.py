"""The watch cache as kopf's watches fill it, also when a watch breaks."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import kopf
from aiohttp import web

from ottla_operator.kube.api import ApiClient
from ottla_operator.kube.kinds import CLUSTER, TOPIC, ObjectKind, kind_of
from ottla_operator.kube.operator import Operator, OperatorOptions
from ottla_operator.kube.watches import OWNED, RESOURCES, Watches
from ottla_operator.plan.objects.broker_pod import BrokerImages
from ottla_operator.plan.pipeline.pods import PipelineImage
from ottla_operator.reconcile.controller import Controller
from ottla_operator.reconcile.watch_cache import Key
from ottla_operator.resources.model import Json
from tests.unit.async_tests import async_test, run_event_loop, wait_until
from tests.unit.operator.api_server import FakeApi

NAMESPACE = ObjectKind("v1", "Namespace", "namespaces")  # kopf looks this kind up
KINDS = (*RESOURCES, *OWNED, NAMESPACE)


class ApiServer:
    """The part of an API server that a watch needs. `cut` ends all watches; events since their
    start are not replayed.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}  # by uid
        self.cluster_list_count = 0
        self._cut = asyncio.Event()

    def make(self, kind: ObjectKind, name: str, uid: str, **spec: object) -> None:
        metadata = {"name": name, "namespace": "events", "uid": uid, "generation": 1, "resourceVersion": "1"}
        self.objects[uid] = {"apiVersion": kind.api, "kind": kind.name, "metadata": metadata, "spec": spec}

    def cut(self) -> None:
        self._cut.set()
        self._cut = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path.strip("/")
        if path == "api":
            return web.json_response({"versions": ["v1"]})
        if path == "apis":
            return web.json_response(
                {"groups": [_group(it) for it in sorted({it.api for it in KINDS if it.api != "v1"})]}
            )
        if found := [it for it in KINDS if path.split("/", 1)[1] == it.api]:
            return web.json_response({"resources": [_served(it) for it in found]})
        if named := [
            it for it in self.objects.values() if path == kind_of(it).path("events", it["metadata"]["name"]).strip("/")
        ]:
            return web.json_response(named[0])
        (kind,) = [it for it in KINDS if path == it.path(None).strip("/")]
        if "watch" in request.query:
            return await self._watch(request)
        self.cluster_list_count += kind is CLUSTER
        items = [it for it in self.objects.values() if it["kind"] == kind.name]
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await self._cut.wait()
        gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version"}}
        await response.write(json.dumps(gone).encode() + b"\n")
        return response


def _group(api: str) -> Json:
    group, _, version = api.rpartition("/")
    return {"name": group, "versions": [{"version": version}], "preferredVersion": {"version": version}}


def _served(kind: ObjectKind) -> Json:
    verbs = ["list", "watch"]
    return {"name": kind.plural, "singularName": "", "kind": kind.name, "namespaced": True, "verbs": verbs}


@asynccontextmanager
async def run_operator(server: ApiServer) -> AsyncIterator[Operator]:
    """Yields an operator whose watches run."""
    app = web.Application()
    app.router.add_get("/{path:.*}", server.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    (address,) = runner.addresses
    info = kopf.ConnectionInfo(server=f"http://127.0.0.1:{address[1]}")
    options = OperatorOptions(
        (), "default", "ottla-operator", BrokerImages("broker", "1"), PipelineImage("spark"), None
    )
    operator = Operator(options, login=lambda: info)
    task = asyncio.create_task(operator.watches.run(asyncio.Event()))
    try:
        yield operator
    finally:
        task.cancel()
        await asyncio.wait([task])
        await operator.api.close()
        await runner.cleanup()


@async_test
async def test_a_resource_deleted_while_no_watch_ran_is_forgotten() -> None:
    """kopf begins a new watch with what exists then, and reports no deletion from before."""
    server = ApiServer()
    server.make(CLUSTER, "demo", "1", replicas=1)
    server.make(CLUSTER, "other", "2", replicas=1)
    server.make(TOPIC, "flights", "3", clusterRef={"name": "other"})
    async with run_operator(server) as operator:
        cache = operator.controller.cache
        await wait_until(lambda: len(cache.clusters) == 2 and bool(cache.topics))
        del server.objects["1"], server.objects["3"]
        server.make(CLUSTER, "new", "4", replicas=1)
        before = server.cluster_list_count
        server.cut()
        await wait_until(lambda: Key("events", "new") in cache.clusters and server.cluster_list_count > before)
        await operator.watches.relist()
        assert cache.clusters.keys() == {Key("events", "other"), Key("events", "new")}
        assert cache.topics == {}


@async_test
async def test_the_operator_is_ready_when_its_cache_has_every_resource() -> None:
    server = ApiServer()
    server.make(CLUSTER, "demo", "1", replicas=1)
    server.make(TOPIC, "flights", "2", clusterRef={"name": "demo"})
    async with run_operator(server) as operator:
        reporting = asyncio.create_task(operator.report_ready())
        assert not operator.metrics.is_ready
        await reporting
        assert len(operator.controller.cache.all()) == 2 and operator.metrics.is_ready


@async_test
async def test_a_resource_that_no_watch_shows_is_found() -> None:
    server = ApiServer()
    server.make(CLUSTER, "demo", "1", replicas=1)
    server.make(TOPIC, "flights", "2", clusterRef={"name": "demo"})
    async with run_operator(server) as operator:
        cache = operator.controller.cache
        await wait_until(lambda: bool(cache.clusters) and bool(cache.topics))
        server.make(CLUSTER, "new", "3", replicas=1)
        server.objects["2"]["metadata"]["resourceVersion"] = "2"
        server.objects["2"]["spec"]["partitions"] = 5
        await operator.watches.relist()
        assert len(cache.clusters) == 1, "a watch may still show it"
        await operator.watches.relist()
        assert cache.clusters.keys() == {Key("events", "demo"), Key("events", "new")}
        assert cache.topics[Key("events", "demo")]["flights"]["spec"]["partitions"] == 5


@async_test
async def test_an_operator_that_waits_for_its_crds_stops() -> None:
    api = FakeApi(unserved={"Pipeline"})
    watches = Watches(cast(ApiClient, api), cast(Controller, None), (), lambda: kopf.ConnectionInfo(server=""), "test")
    stop = asyncio.Event()
    watching = asyncio.create_task(watches.run(stop))
    await run_event_loop()
    assert not watching.done()
    stop.set()
    await asyncio.wait_for(watching, 1)
