"""Almost valid logins: SASL handshakes of every mechanism, whose tokens and frames are mutated."""

import asyncio
import base64
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Final

from kio.schema.metadata.v4.request import MetadataRequest
from kio.schema.sasl_authenticate.v1.request import SaslAuthenticateRequest
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import write_request

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "")
SERVED: Final = 99  # correlation id of a request that requires a login
AT_ONCE: Final = 4
ANSWERS_WITHIN_S: Final = 10.0
LARGE: Final = 600_000  # above sasl.server.max.receive.size


@dataclass
class HandshakeResults:
    """`ended` counts handshakes by how they ended. `hung` and `served` must stay empty: they have
    the seeds of handshakes without an answer or an end, and of those after which a request was
    served.
    """

    ended: Counter[str] = field(default_factory=Counter)
    hung: list[str] = field(default_factory=list)
    served: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.ended.total()


async def try_handshakes(host: str, port: int, seconds: float, seed: int, at_least: int) -> HandshakeResults:
    """Tries handshakes for `seconds`, and longer until `at_least` were tried. None has the right
    password.
    """
    results, loop = HandshakeResults(), asyncio.get_running_loop()
    end_s = loop.time() + seconds

    async def run(number: int) -> None:
        attempt = 0
        while loop.time() < end_s or results.count < at_least:
            attempt += 1
            attempt_seed = f"{seed} {number} {attempt}"
            random = Random(attempt_seed)
            try:
                async with asyncio.timeout(ANSWERS_WITHIN_S):
                    how = await try_handshake(host, port, random)
            except TimeoutError:
                results.hung.append(attempt_seed)
                how = "hung"
            if how == "served":
                results.served.append(attempt_seed)
            results.ended[how] += 1

    await asyncio.gather(*(run(number) for number in range(AT_ONCE)))
    return results


async def try_handshake(host: str, port: int, random: Random) -> str:
    """Tries one handshake, and then a request that requires a login. Returns how that ended:
    `closed`, `refused`, or `served`, which must not happen.
    """
    reader, writer = await asyncio.open_connection(host, port)
    try:
        mechanism, version = random.choice(MECHANISMS), random.choice((0, 1, 1))
        greeting = SaslHandshakeRequest(mechanism=mechanism)
        writer.write(mutate_frame(random, bytes(write_request(ApiKey.SASL_HANDSHAKE, version, 1, "fuzz", greeting))))
        nonce = await read_nonce(reader)
        for token in (first_token(random, mechanism), last_token(random, nonce)):
            writer.write(mutate_frame(random, frame_of_token(random, version, mutate(random, token))))
            nonce = await read_nonce(reader)
        writer.write(write_request(ApiKey.METADATA, 4, SERVED, "fuzz", MetadataRequest(topics=None)))
        try:
            async with asyncio.timeout(0.05):
                response = await read_response(reader)
        except TimeoutError:  # the broker waits for the rest of a frame
            writer.write_eof()
            response = await read_response(reader)
        return "served" if response[:4] == SERVED.to_bytes(4) else "refused"
    except (OSError, asyncio.IncompleteReadError):  # ENOTCONN of write_eof is no ConnectionError
        return "closed"
    finally:
        writer.close()


def frame_of_token(random: Random, version: int, token: bytes) -> bytes:
    if version == 0 and random.random() < 0.9:
        return len(token).to_bytes(4) + token
    request = SaslAuthenticateRequest(auth_bytes=token)
    return bytes(write_request(ApiKey.SASL_AUTHENTICATE, random.choice((0, 1)), 2, "fuzz", request))


def first_token(random: Random, mechanism: str) -> bytes:
    user = random.choice((b"alice", b"nobody", b"=2C=3D", b"", b"a" * 300, b"\xff\xfe"))
    if mechanism == "PLAIN":
        return b"\0".join((random.choice((b"", user)), user, b"a wrong password"))
    if mechanism == "OAUTHBEARER":
        return b"n,,\x01auth=Bearer " + random.choice((b"e30.e30.", b"a.b.c", b"")) + b"\x01\x01"
    options = random.choice((b"", b"", b",tokenauth=true", b",m=ext"))
    return random.choice((b"n,,", b"y,,", b"p=tls-unique,,")) + b"n=" + user + b",r=client" + options


def last_token(random: Random, nonce: bytes) -> bytes:
    proof = base64.b64encode(random.randbytes(random.choice((32, 64, 0, 7))))
    return b"c=biws,r=" + random.choice((nonce, b"client", b"")) + b",p=" + proof


async def read_nonce(reader: asyncio.StreamReader) -> bytes:
    """The nonce in the server's first message; empty if the response has none, or if the server
    waits for the rest of the frame. Raises the error with which the connection ends.
    """
    try:
        async with asyncio.timeout(0.02):
            response = await read_response(reader)
    except TimeoutError:
        return b""
    _, found, rest = response.partition(b"r=")
    return rest.partition(b",")[0] if found else b""


async def read_response(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(4))
    return await reader.readexactly(size)


def mutate_frame(random: Random, frame: bytes) -> bytes:
    """Usually returns the frame as it is. Otherwise its size is wrong, or its content mutated."""
    what = random.random()
    if what < 0.7:
        return frame
    if what < 0.8:
        return random.choice((0, 1, 7, LARGE, 2**31 - 1, 2**32 - 1)).to_bytes(4) + frame[4:]
    return frame[:4] + mutate(random, frame[4:])


def mutate(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) + 1)
    match random.randrange(8):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + random.randbytes(random.choice((1, 4, 40))) + data[at:]
        case 2:
            return data[:at] + random.choice((b",", b"=", b"\0", b"\x01", b"n=", b"r=", b"p=")) + data[at + 1 :]
        case 3:
            return data + data
        case 4 if data:
            at = random.randrange(len(data))
            return data[:at] + bytes((data[at] ^ (1 << random.randrange(8)),)) + data[at + 1 :]
        case _:
            return data
