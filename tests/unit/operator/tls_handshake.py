"""A TLS handshake in memory."""

import ssl
from pathlib import Path


def shake_hands(server: dict[str, str], authorities: str, client: tuple[str, str] | None, folder: Path) -> str:
    """A handshake in memory, by a client that verifies the server. Returns the client's
    certificate as text, with its subject; "None" if it has none.
    """
    server_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=server["ca.crt"])
    server_context.verify_mode = ssl.CERT_REQUIRED if client else ssl.CERT_NONE
    client_context = ssl.create_default_context(cadata=authorities)
    for context, pair in ((server_context, (server["tls.crt"], server["tls.key"])), (client_context, client)):
        if pair is not None:
            (folder / "pair.pem").write_text(f"{pair[1]}{pair[0]}")
            context.load_cert_chain(folder / "pair.pem")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client_context.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server_context.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return str(sides[1].getpeercert())
