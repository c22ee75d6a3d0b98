"""The record types of one group protocol in `__consumer_offsets`.

A key begins with the number of its type and has only text fields; a value begins with its version.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

from ottla_broker.coordination.record_format import Field, RecordFormat
from ottla_broker.coordination.records import decode_value
from ottla_broker.wire.message_reader import MalformedMessage
from ottla_broker.wire.message_writer import write_string

_I16: Final = struct.Struct(">h")

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


NO_ENCODERS: Final[Mapping[Any, Callable[[Any], bytes]]] = {}


class RecordTypes(Generic[KeyT, ValueT]):
    """`types`: class of the keys → number of the type, and format of the values in their only
    version; None for a type of which only tombstones are written. `encoders`: for types of which
    many are written at once, functions that do the same as the format.
    """

    def __init__(
        self,
        types: dict[Any, tuple[int, RecordFormat[Any] | None]],
        encoders: Mapping[Any, Callable[[Any], bytes]] = NO_ENCODERS,
    ) -> None:
        self._encoders = encoders
        self._values = {key: value_format for key, (_, value_format) in types.items()}
        self._numbers = {key: number for key, (number, _) in types.items()}
        self._keys = {
            number: RecordFormat[Any](key, [Field("string")] * len(key._fields), latest=number)
            for key, number in self._numbers.items()
        }

    def encode_key(self, key: KeyT) -> bytes:
        out = bytearray(_I16.pack(self._numbers[type(key)]))
        texts: Any = key  # a tuple
        for text in texts:
            write_string(out, text)
        return bytes(out)

    def encode_value(self, key: KeyT, value: ValueT) -> bytes:
        if (encode := self._encoders.get(type(key))) is not None:
            return encode(value)
        value_format = self._values[type(key)]
        assert value_format is not None, f"{key} is only ever removed"
        return value_format.write(value, 0)

    def decode_key(self, data: bytes) -> KeyT | None:
        """None for the key of another type. Raises MalformedMessage for a truncated key."""
        if len(data) < 2:
            raise MalformedMessage(f"a key of {len(data)} bytes has no type")
        number = int.from_bytes(data[:2], "big", signed=True)
        key_format = self._keys.get(number)
        return None if key_format is None else key_format.read(data, 2, number)

    def decode_value(self, key: KeyT, data: bytes | None) -> ValueT | None:
        """None for a tombstone, and for a type whose values are not read. Raises
        MalformedMessage.
        """
        value_format = self._values[type(key)]
        return None if data is None or value_format is None else decode_value(value_format, data)
