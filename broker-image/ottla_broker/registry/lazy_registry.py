"""The schema registry of a broker, loaded when it is used first.

Its sockets listen from the broker's start. The first connection, the first page of the console that
needs schemas, or the first record of a topic that validates schema ids, loads the rest: so a broker
whose registry nobody uses needs no memory for it and starts as fast as one without.
"""

import asyncio
import importlib
import logging
import socket
import ssl
from typing import Any, Final

from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.broker import Broker
from ottla_broker.config import SCHEMA_REGISTRY_SECURITY_LISTENER, HttpAddress
from ottla_broker.listener_certificates import ListenerCertificates
from ottla_broker.metadata.records import Endpoint
from ottla_broker.registry.endpoint import listen
from ottla_broker.wire.client_security import TLS_PROTOCOLS

logger = logging.getLogger(__name__)

SERVER: Final = "ottla_broker.registry.rest.server"


class LazyRegistry:
    """The registry of a broker. Until it is loaded, this object is `broker.schema_ids`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._sockets: list[socket.socket] = []
        self._tls: ssl.SSLContext | None = None
        self._server: Any = None
        self._is_serving = asyncio.Event()
        self._is_waiting = True  # for the first use
        self._tasks = BackgroundTasks(broker.unrecoverable_errors.append)
        broker.schema_ids = self

    async def start(self, address: HttpAddress, advertised_host: str, certificates: ListenerCertificates) -> Endpoint:
        """Listens, and returns the endpoint to which other brokers forward requests. Raises
        OSError, for example when the port is taken; TlsConfigError.
        """
        config = self._broker.config
        listener = config(SCHEMA_REGISTRY_SECURITY_LISTENER) or config.listeners[0].name
        if config.security_protocol(listener) in TLS_PROTOCOLS:
            self._tls = certificates.make_context(listener)
        self._sockets = await listen(address.host, address.port)
        for each in self._sockets:
            asyncio.get_running_loop().add_reader(each, self._load_soon)
        protocol = "SSL" if self._tls is not None else "PLAINTEXT"
        return Endpoint(advertised_host, self._sockets[0].getsockname()[1], protocol)

    def is_known(self, subject: str, schema_id: int) -> bool | None:
        """Begins to load the registry, and returns None: unknown until it is loaded. Loading
        replaces this object as `schema_ids`.
        """
        self._load_soon()
        return None

    async def load(self) -> Any:
        """Loads the SchemaRegistry, and returns it when it has read the schemas, or after the
        server's START_TIMEOUT_S.
        """
        self._load_soon()
        await self._is_serving.wait()
        return self._server.registry

    def _load_soon(self) -> None:
        if self._is_waiting:
            self._stop_waiting()
            self._tasks.start(self._load())

    async def _load(self) -> None:
        logger.info("loading the schema registry, which is used for the first time")
        await self._broker.runtime.run_in_thread(importlib.import_module, SERVER)
        from ottla_broker.registry.rest.server import RegistryServer

        self._server = RegistryServer(self._broker)
        await self._server.start(self._sockets, self._tls)
        self._is_serving.set()

    async def close(self) -> None:
        await self._tasks.cancel()
        if self._server is not None:
            await self._server.close()
        self._stop_waiting()
        for each in self._sockets:
            each.close()

    def _stop_waiting(self) -> None:
        """From now on neither a connection nor a record begins to load the registry."""
        if self._is_waiting:
            self._is_waiting = False
            for each in self._sockets:
                asyncio.get_running_loop().remove_reader(each)
