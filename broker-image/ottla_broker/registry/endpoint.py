"""The endpoint of a broker's schema registry: its advertised address and its sockets."""

import asyncio
import errno
import socket
from typing import Final

BACKLOG: Final = 128
ENDPOINT: Final = "schema.registry"
"""The name of the registry's address among the endpoints that a broker registers. Names of
listeners are in upper case.
"""


async def listen(host: str, port: int) -> list[socket.socket]:
    """Opens sockets that listen on every address of the host; without a host, on all addresses of
    the machine. Of several addresses, those that the machine does not have are left out. Raises
    OSError, also if it has none of them.
    """
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, type_, protocol, _, address in dict.fromkeys(addresses):
            each = socket.socket(family, type_, protocol)
            sockets.append(each)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            each.setblocking(False)
            try:
                each.bind(address)
            except OSError as reason:
                if reason.errno != errno.EADDRNOTAVAIL or len(addresses) == 1:
                    raise
                sockets.pop().close()  # a machine without IPv6 resolves names to IPv6 addresses too
                continue
            each.listen(BACKLOG)
        if not sockets:
            raise OSError(errno.EADDRNOTAVAIL, f"this machine has no address of {host!r}")
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets
