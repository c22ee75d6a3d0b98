"""The pages of the console and their paths.

Pages that not everybody opens are imported with their first request (`LazyPages`): a console that
nobody uses takes less memory.
"""

import importlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from aiohttp import web

from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.broker import Broker
from ottla_broker.console.cluster_requests import ClusterRequests
from ottla_broker.console.overview import Overview
from ottla_broker.console.requests import PageHandler, PageRequest
from ottla_broker.console.topics import TopicPages
from ottla_broker.dispatcher import RequestDispatcher
from ottla_broker.registry.lazy_registry import LazyRegistry
from ottla_broker.runtime import Runtime


class LazyPages:
    """`module`: the name of a module of this package. `build`: makes the pages from the imported
    module.
    """

    def __init__(self, runtime: Runtime, module: str, build: Callable[[Any], Any]) -> None:
        self._runtime = runtime
        self._module = f"{__package__}.{module}"
        self._build = build
        self._pages: Any = None

    def handler(self, name: str) -> PageHandler:
        """A page handler that calls the method `name` of the pages."""

        async def handle(page: PageRequest) -> web.StreamResponse:
            response: web.StreamResponse = await getattr(await self._load(), name)(page)
            return response

        return handle

    async def _load(self) -> Any:
        if self._pages is None:
            module = await self._runtime.run_in_thread(importlib.import_module, self._module)
            self._pages = self._pages or self._build(module)
        return self._pages


class PageRoute(NamedTuple):
    method: str
    path: str
    handler: PageHandler


def make_page_routes(
    broker: Broker,
    dispatcher: RequestDispatcher,
    registry: LazyRegistry | None,
    requests: ClusterRequests,
    overview: Overview,
    tasks: BackgroundTasks,
) -> list[PageRoute]:
    topics = TopicPages(broker, requests)
    return [
        PageRoute("GET", "/", overview.show),
        PageRoute("GET", "/log-dirs", overview.show_log_dirs),
        PageRoute("GET", "/restarts", overview.show_restarts),
        PageRoute("GET", "/throughput", overview.throughput),
        PageRoute("GET", "/topics", topics.show_list),
        PageRoute("GET", "/topics/{topic}", topics.show_topic),
        *_topic_growth_routes(broker, requests, topics),
        *_topic_change_routes(broker, dispatcher, topics),
        *_group_routes(broker, requests, topics, tasks),
        *_message_routes(broker, registry, requests, topics),
        *_schema_routes(broker, registry),
        *_access_routes(broker),
        *_cluster_routes(broker, requests),
        *_mirror_routes(broker, requests),
        *_pipeline_routes(broker, requests),
    ]


def _topic_growth_routes(broker: Broker, requests: ClusterRequests, topics: TopicPages) -> Iterator[PageRoute]:
    growth = LazyPages(broker.runtime, "topic_growth", lambda module: module.TopicGrowthPages(broker, requests, topics))
    yield PageRoute("GET", "/topics/{topic}/growth", growth.handler("show"))


def _topic_change_routes(broker: Broker, dispatcher: RequestDispatcher, topics: TopicPages) -> Iterator[PageRoute]:
    changes = LazyPages(
        broker.runtime, "topic_changes", lambda module: module.TopicChangePages(broker, dispatcher, topics)
    )
    forms = (
        ("/topic/create", "show_create", "create"),
        ("/topics/{topic}/configs/{config}", "show_config", "change_config"),
        ("/topics/{topic}/delete", "show_delete", "delete"),
    )
    for path, show, change in forms:
        yield PageRoute("GET", path, changes.handler(show))
        yield PageRoute("POST", path, changes.handler(change))


def _group_routes(
    broker: Broker, requests: ClusterRequests, topics: TopicPages, tasks: BackgroundTasks
) -> Iterator[PageRoute]:
    groups = LazyPages(broker.runtime, "groups", lambda module: module.GroupPages(broker, requests, topics, tasks))
    yield PageRoute("GET", "/topics/{topic}/groups", groups.handler("show_readers"))
    yield PageRoute("GET", "/groups", groups.handler("show_list"))
    yield PageRoute("GET", "/group", groups.handler("show_group"))
    yield PageRoute("GET", "/group/lag", groups.handler("lag_history"))
    resets = LazyPages(broker.runtime, "group_reset", lambda module: module.GroupResetPages(broker, requests))
    yield PageRoute("GET", "/group/reset", resets.handler("show"))
    yield PageRoute("POST", "/group/reset", resets.handler("reset"))
    yield PageRoute("GET", "/group/reset/file", resets.handler("download"))
    yield PageRoute("POST", "/group/reset/undo", resets.handler("download_undo"))


def _message_routes(
    broker: Broker, registry: LazyRegistry | None, requests: ClusterRequests, topics: TopicPages
) -> Iterator[PageRoute]:
    messages = LazyPages(
        broker.runtime, "messages", lambda module: module.MessagePages(broker, requests, topics, registry)
    )
    path = "/topics/{topic}/messages"
    yield PageRoute("GET", path, messages.handler("show"))
    yield PageRoute("GET", f"{path}/stream", messages.handler("stream"))
    yield PageRoute("GET", f"{path}/export", messages.handler("export"))
    one = path + r"/{partition:\d{1,9}}/{offset:\d{1,19}}"
    yield PageRoute("GET", one, messages.handler("show_record"))
    produce = LazyPages(
        broker.runtime, "produce", lambda module: module.ProducePages(broker, requests, topics, registry)
    )
    yield PageRoute("GET", "/topics/{topic}/produce", produce.handler("show"))
    yield PageRoute("POST", "/topics/{topic}/produce", produce.handler("produce"))
    yield PageRoute("GET", f"{one}/copy", produce.handler("show_copy"))
    yield PageRoute("POST", f"{one}/copy", produce.handler("copy"))


def _schema_routes(broker: Broker, registry: LazyRegistry | None) -> Iterator[PageRoute]:
    schemas = LazyPages(broker.runtime, "schemas", lambda module: module.SchemaPages(broker, registry))
    yield PageRoute("GET", "/schemas", schemas.handler("show_list"))
    yield PageRoute("GET", "/schema", schemas.handler("show_subject"))
    yield PageRoute("POST", "/schema", schemas.handler("check"))


def _access_routes(broker: Broker) -> Iterator[PageRoute]:
    access = LazyPages(broker.runtime, "access_pages", lambda module: module.AccessPages(broker))
    yield PageRoute("GET", "/access", access.handler("show_rules"))
    yield PageRoute("GET", "/access/why", access.handler("explain"))
    yield PageRoute("GET", "/access/users", access.handler("show_users"))
    yield PageRoute("GET", "/access/quotas", access.handler("show_quotas"))


def _cluster_routes(broker: Broker, requests: ClusterRequests) -> Iterator[PageRoute]:
    cluster = LazyPages(broker.runtime, "cluster", lambda module: module.ClusterPages(broker, requests))
    yield PageRoute("GET", "/cluster", cluster.handler("show"))
    yield PageRoute("GET", "/cluster/quorum", cluster.handler("show_quorum"))
    yield PageRoute("GET", "/cluster/departure", cluster.handler("show_departure"))
    yield PageRoute("GET", "/cluster/metadata", cluster.handler("show_metadata"))


def _pipeline_routes(broker: Broker, requests: ClusterRequests) -> Iterator[PageRoute]:
    pipelines = LazyPages(broker.runtime, "pipelines", lambda module: module.PipelinePages(requests))
    yield PageRoute("GET", "/pipelines", pipelines.handler("show_list"))
    yield PageRoute("GET", "/pipeline", pipelines.handler("show_pipeline"))


def _mirror_routes(broker: Broker, requests: ClusterRequests) -> Iterator[PageRoute]:
    mirrors = LazyPages(broker.runtime, "mirrors", lambda module: module.MirrorPages(broker, requests))
    yield PageRoute("GET", "/mirrors", mirrors.handler("show_list"))
    yield PageRoute("GET", "/mirror", mirrors.handler("show_mirror"))
