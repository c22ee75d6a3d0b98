"""Pages whose module is imported with their first request: a console that nobody uses takes less
memory.
"""

import importlib
from collections.abc import Callable
from typing import Any

from aiohttp import web

from ottla_broker.console.requests import PageHandler, PageRequest
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
