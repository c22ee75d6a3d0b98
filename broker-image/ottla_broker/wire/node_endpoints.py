"""What answers to Produce and Fetch tell of who leads a partition, and where that broker is (KIP-951)."""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla_broker.wire.message_writer import write_varint

LEADER: Final = struct.Struct(">ii")  # id, epoch
_I32 = struct.Struct(">i")


class NodeEndpoint(NamedTuple):
    """Where a broker is reached on the listener that the asker came by."""

    broker: int
    host: str
    port: int
    rack: str | None = None


def write_current_leader(out: bytearray, tag: int, leader: tuple[int, int]) -> None:
    """(id, epoch) as a tagged field, without the count of tags in front."""
    out += bytes((tag, LEADER.size + 1))
    out += LEADER.pack(*leader)
    out.append(0)


def write_node_endpoints(out: bytearray, addresses: Sequence[NodeEndpoint]) -> None:
    """The last section of tags of a response: tag 0, if there is anything to tell."""
    if not addresses:
        out.append(0)
        return
    section = bytearray()
    write_varint(section, len(addresses) + 1)
    for broker, host, port, rack in addresses:
        section += _I32.pack(broker)
        _put_text(section, host)
        section += _I32.pack(port)
        _put_text(section, rack)
        section.append(0)
    out += b"\x01\x00"
    write_varint(out, len(section))
    out += section


def _put_text(out: bytearray, text: str | None) -> None:
    encoded = None if text is None else text.encode()
    write_varint(out, 0 if encoded is None else len(encoded) + 1)
    out += encoded or b""
