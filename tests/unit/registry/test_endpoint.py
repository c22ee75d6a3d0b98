"""The sockets of the registry's listener."""

import asyncio
import errno
import socket

import pytest

from ottla_broker.registry.endpoint import listen


def test_a_host_of_which_the_machine_has_no_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(*_: object, **__: object) -> list[object]:
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*kind, ("198.51.100.1", 0)), (*kind, ("203.0.113.1", 0))]  # RFC 5737: addresses for documentation

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", resolve)
    with pytest.raises(OSError, match="no address of 'elsewhere'") as refused:
        asyncio.run(listen("elsewhere", 0))
    assert refused.value.errno == errno.EADDRNOTAVAIL
