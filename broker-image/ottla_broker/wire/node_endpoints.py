"""The current leader of a partition and its endpoint, in responses to Produce and Fetch
(KIP-951).
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla_broker.wire.message_writer import write_compact_string, write_varint

LEADER: Final = struct.Struct(">ii")  # id, epoch
_I32: Final = struct.Struct(">i")


class NodeEndpoint(NamedTuple):
    """Address of a broker on the client's listener."""

    broker: int
    host: str
    port: int
    rack: str | None = None


def write_current_leader(out: bytearray, tag: int, leader: tuple[int, int]) -> None:
    """Writes (id, epoch) as a tagged field, without the number of tagged fields in front."""
    out += bytes((tag, LEADER.size + 1))
    out += LEADER.pack(*leader)
    out.append(0)


def write_node_endpoints(out: bytearray, endpoints: Sequence[NodeEndpoint]) -> None:
    """Writes the tagged fields that end a response; without endpoints there are none."""
    if not endpoints:
        out.append(0)
        return
    section = bytearray()
    write_varint(section, len(endpoints) + 1)
    for broker, host, port, rack in endpoints:
        section += _I32.pack(broker)
        write_compact_string(section, host)
        section += _I32.pack(port)
        write_compact_string(section, rack)
        section.append(0)
    out += b"\x01\x00"
    write_varint(out, len(section))
    out += section
