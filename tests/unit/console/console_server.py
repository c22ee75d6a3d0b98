"""A console that is served over HTTP, on a broker without Kafka listeners."""

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from aiohttp import ClientSession

from ottla_broker.broker import Broker
from ottla_broker.config import HttpAddress
from ottla_broker.console.console import Console
from ottla_broker.http.server import HttpServer
from tests.unit.config.api_broker import broker_with_topic

# The limit of every page, however many topics or subjects there are.
MAX_PAGE_BYTES = 200_000


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class ConsoleClient:
    def __init__(self, broker: Broker, url: str, session: ClientSession) -> None:
        self.broker = broker
        self.url = url
        self.session = session

    async def post(self, path: str, form: Mapping[str, str], **headers: str) -> Answer:
        headers = {"Origin": self.url, **headers}
        async with self.session.post(self.url + path, data=form, headers=headers, allow_redirects=False) as response:
            return Answer(response.status, response.headers, await response.text())

    async def get_form_token(self) -> str:
        """The token of the console's forms, read from the page of the subject `t-value`. Needs a
        console without logins, and a registry with that subject.
        """
        match = re.search(r'name="token" value="([^"]+)"', (await self.get("/schema?subject=t-value")).text)
        assert match is not None
        return match.group(1)

    async def get(self, path: str, **headers: str) -> Answer:
        async with self.session.get(self.url + path, headers=headers, allow_redirects=False) as response:
            return Answer(response.status, response.headers, await response.text())


@asynccontextmanager
async def run_console(folder: Path, registry: Any = None, **settings: str) -> AsyncIterator[ConsoleClient]:
    """A broker with the topic `t`, and the broker's console. `registry`: stands in for the
    broker's LazyRegistry; None: no schema registry. `settings`: of the broker, with underscores
    for dots.
    """
    server: Any = SimpleNamespace(
        dispatcher=SimpleNamespace(request_counts=[0] * 128, request_times=SimpleNamespace(by_api={}))
    )
    async with broker_with_topic(folder, **settings) as broker:
        console = Console(broker, server, registry)
        http = HttpServer(broker, server, console.routes())
        port = await http.start(HttpAddress("127.0.0.1", 0))
        console.start()
        try:
            async with ClientSession() as session:
                yield ConsoleClient(broker, f"http://127.0.0.1:{port}", session)
        finally:
            await http.close()
            await console.close()
