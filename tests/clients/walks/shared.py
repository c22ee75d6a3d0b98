"""An answer in the form that two brokers can share: ids by the names of their first sight, clocks and words dropped."""

import dataclasses
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.records import iter_records
from tests.clients.asking import DROPPED, NAMES, NO_SESSION, NONE, OWN, SAID, Json

LISTED = frozenset({"topics", "groups", "results"})  # may hold what other walks have made
RECENT_MS = 1_750_000_000_000  # later than any time that a walk writes: a clock's
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    prefix: str
    symbols: Mapping[Any, str]

    def of(self, value: Any, field: str = "") -> Json:
        if field in SAID:
            return "…" if value else value
        if isinstance(value, ErrorCode):
            return value.name
        if dataclasses.is_dataclass(value):
            return {
                each.name: self.of(getattr(value, each.name), each.name)
                for each in dataclasses.fields(value)
                if each.name not in DROPPED
            }
        if isinstance(value, tuple | list):
            kept = [self.of(each, field) for each in value if self._is_ours(each, field)]
            return sorted(merged(kept), key=repr)
        if isinstance(value, bytes | bytearray | memoryview):
            return records_in(bytes(value)) if field == "records" else bytes(value).decode("latin-1")
        return self._plain(value, field)

    def _plain(self, value: Any, field: str) -> Json:
        if isinstance(value, str | UUID) and value in self.symbols:
            return self.symbols[value]
        if isinstance(value, UUID):
            return f"<{field}>"
        if field in OWN and value not in (NO_SESSION if field == "session_id" else NONE):
            return f"<{field}>"
        if isinstance(value, str):
            return _UUID.sub("<uuid>", value.replace(self.prefix, ""))
        if isinstance(value, timedelta):
            return value // timedelta(milliseconds=1)
        if isinstance(value, datetime):
            value = round(value.timestamp() * 1000)
        return "<now>" if isinstance(value, int) and value > RECENT_MS else value

    def _is_ours(self, entry: Any, field: str) -> bool:
        if field not in LISTED:
            return True
        name = next((getattr(entry, each) for each in NAMES if hasattr(entry, each)), None)
        return not name or name.startswith(self.prefix)


def merged(entries: list[Json]) -> list[Json]:
    """A topic's partitions together: in how many entries they come is the broker's own affair. An id names a topic where no name does."""
    topics: dict[str, Json] = {}
    rest = []
    for entry in entries:
        if not (isinstance(entry, dict) and isinstance(entry.get("partitions"), list)):
            rest.append(entry)
            continue
        name = str(entry.get("name") or entry.get("topic") or entry.get("topic_id"))
        known = topics.setdefault(name, {**entry, "topic": name, "partitions": []})
        known["partitions"] = sorted([*known["partitions"], *entry["partitions"]], key=repr)
    return [*topics.values(), *rest]


def records_in(data: bytes) -> Json:
    """The whole batches in what was fetched: all that a reader can see of them. A batch that is cut is left out: where it is cut is the
    broker's own affair."""
    whole, at = 0, 0
    while at + 12 <= len(data):
        at += 12 + int.from_bytes(data[at + 8 : at + 12])
        whole = at if at <= len(data) else whole
    found = []
    for header, record in iter_records(data[:whole]):
        by = (
            f" by {header.producer_id}/{header.producer_epoch}/{header.base_sequence}"
            if header.producer_id >= 0
            else ""
        )
        at_ms = "now" if record.timestamp_ms > RECENT_MS else record.timestamp_ms
        where = f"{header.base_offset}: {record.offset} epoch {header.leader_epoch} attributes {header.attributes}"
        found.append(f"{where}{by} at {at_ms} {record.key!r}={(record.value or b'')[:9]!r}")
    return found
