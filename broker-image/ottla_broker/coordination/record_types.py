"""The record types of one group protocol in `__consumer_offsets`.

A key begins with the number of its type and has only text fields; a value begins with its version.
"""

from typing import Any, Generic, TypeVar

from ottla_broker.coordination.record_format import Field, RecordFormat
from ottla_broker.coordination.records import decode_value
from ottla_broker.wire.message_reader import MalformedMessage

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class RecordTypes(Generic[KeyT, ValueT]):
    """`types`: class of the keys → number of the type, and format of the values in their only
    version; None for a type of which only tombstones are written.
    """

    def __init__(self, types: dict[Any, tuple[int, RecordFormat[Any] | None]]) -> None:
        self._values = {key: value_format for key, (_, value_format) in types.items()}
        self._numbers = {key: number for key, (number, _) in types.items()}
        self._keys = {
            number: RecordFormat[Any](key, [Field("string")] * len(key._fields), latest=number)
            for key, number in self._numbers.items()
        }

    def encode_key(self, key: KeyT) -> bytes:
        number = self._numbers[type(key)]
        return self._keys[number].write(key, number)

    def encode_value(self, key: KeyT, value: ValueT) -> bytes:
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
