"""Normalizes responses, so that those of two brokers can be compared: ids are replaced by names,
times of the broker's clock by `<now>`, and throttle times and error messages are removed.
"""

import dataclasses
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.records import iter_records
from tests.clients.api_session import (
    BROKER_SPECIFIC_FIELDS,
    IGNORED_FIELDS,
    NAME_FIELDS,
    NO_SESSION,
    NO_VALUE,
    TEXT_FIELDS,
    Json,
    merge_spans,
    whole_batches,
)

LISTED = frozenset({"topics", "groups", "results", "transaction_states"})  # may contain entries of other walks
# Which of several equal tasks or partitions a member of a group gets is the broker's choice.
TASK_FIELDS = frozenset(
    {"active_tasks", "standby_tasks", "warmup_tasks", "active_partitions", "standby_partitions", "topic_partitions"}
)
RECENT_MS = 1_750_000_000_000  # later than any timestamp of a walk: the broker's clock
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclasses.dataclass(frozen=True, slots=True)
class ResponseNormalizer:
    """`prefix` of the walk's names is removed. `symbols` maps values, such as ids, to names."""

    prefix: str
    symbols: Mapping[Any, str]

    def normalize(self, value: Any, field: str = "") -> Json:
        if field in TEXT_FIELDS:
            return "…" if value else value
        if field == "acquired_records":
            return merge_spans(value)
        if field in TASK_FIELDS and value is not None:
            return {"count": sum(len(one.partitions) for one in value)}
        if isinstance(value, ErrorCode):
            return value.name
        if dataclasses.is_dataclass(value):
            fields = {
                each.name: self.normalize(getattr(value, each.name), each.name)
                for each in dataclasses.fields(value)
                if each.name not in IGNORED_FIELDS
            }
            if fields.get("aborted_transactions"):
                fields["aborted_transactions"] = needed_aborts(
                    fields["aborted_transactions"], getattr(value, "records", None)
                )
            return fields
        if isinstance(value, tuple | list):
            kept = [self.normalize(each, field) for each in value if self._is_own(each, field)]
            return sorted(merge_partitions(kept), key=repr)
        if isinstance(value, bytes | bytearray | memoryview):
            return (
                describe_batches(bytes(value), self.symbols) if field == "records" else bytes(value).decode("latin-1")
            )
        return self._plain(value, field)

    def _plain(self, value: Any, field: str) -> Json:
        if isinstance(value, str | UUID) and value in self.symbols:
            return self.symbols[value]
        if isinstance(value, UUID):
            return f"<{field}>"
        if field in BROKER_SPECIFIC_FIELDS and value not in (NO_SESSION if field == "session_id" else NO_VALUE):
            return f"<{field}>"
        if isinstance(value, str):
            return _UUID.sub("<uuid>", value.replace(self.prefix, ""))
        if isinstance(value, timedelta):
            return value // timedelta(milliseconds=1)
        if isinstance(value, datetime):
            value = round(value.timestamp() * 1000)
        return "<now>" if isinstance(value, int) and value > RECENT_MS else value

    def _is_own(self, entry: Any, field: str) -> bool:
        if field not in LISTED:
            return True
        name = next((getattr(entry, each) for each in (*NAME_FIELDS, "transactional_id") if hasattr(entry, each)), None)
        return not name or name.startswith(self.prefix)


def merge_partitions(entries: list[Json]) -> list[Json]:
    """Merges entries of one topic: brokers differ in how they split partitions into entries.

    Topics are matched by name, or by id if they have no name.
    """
    topics: dict[str, Json] = {}
    rest = []
    for entry in entries:
        if not (isinstance(entry, dict) and isinstance(entry.get("partitions"), list)):
            rest.append(entry)
            continue
        name = str(entry.get("name") or entry.get("topic") or entry.get("topic_id"))
        merged = topics.setdefault(name, {**entry, "topic": name, "partitions": []})
        merged["partitions"] = sorted([*merged["partitions"], *entry["partitions"]], key=repr)
    return [*topics.values(), *rest]


def needed_aborts(aborted: list[Json], data: bytes | None) -> list[Json]:
    """The aborted transactions that begin in the response's records. Kafka lists those up to the
    end of the segment, also beyond the last stable offset.
    """
    last = max((record.offset for _, record in iter_records(whole_batches(data or b""))), default=-1)
    return [one for one in aborted if one["first_offset"] <= last]


def describe_batches(data: bytes, symbols: Mapping[Any, str]) -> Json:
    """The complete batches of a response. A truncated batch is left out, because brokers truncate
    at different places.
    """
    found = []
    for header, record in iter_records(whole_batches(data)):
        producer = symbols.get(("producer", header.producer_id), header.producer_id)
        by = f" by {producer}/{header.producer_epoch}/{header.base_sequence}" if header.producer_id >= 0 else ""
        at_ms = "now" if record.timestamp_ms > RECENT_MS else record.timestamp_ms
        where = f"{header.base_offset}: {record.offset} epoch {header.leader_epoch} attributes {header.attributes}"
        found.append(f"{where}{by} at {at_ms} {record.key!r}={(record.value or b'')[:9]!r}")
    return found
