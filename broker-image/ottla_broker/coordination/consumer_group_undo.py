"""Returns a consumer group to a former state. Every heartbeat that writes records saves the entries
that it changes, so the cost does not depend on the size of the group.
"""

from operator import attrgetter
from typing import Any, Final, Protocol, TypeVar

from ottla_broker.coordination.assignors import Assignment
from ottla_broker.coordination.consumer_group_records import (
    ConsumerGroupRecordKey,
    ConsumerMemberKey,
    CurrentAssignmentKey,
    RegularExpressionKey,
    RegularExpressionValue,
    TargetAssignmentKey,
)

ValueT = TypeVar("ValueT")
SINGLE_FIELDS: Final = (
    "epoch",
    "metadata_hash",
    "assignment_epoch",
    "has_partition_metadata",
    "is_dead",
    "next_deadline_ms",
    "assigned_ms",
    "metadata_version",
    "regex_metadata_version",
    "regex_resolved_ms",
)
"""Fields of a group that are neither of members nor of regular expressions."""
read_single_fields: Final = attrgetter(*SINGLE_FIELDS)


class GroupParts(Protocol):
    """The parts of a group that are saved and restored: its dictionaries by member and by regular
    expression, and the fields above."""

    members: dict[str, Any]
    targets: dict[str, Assignment]
    deadlines: dict[str, Any]
    regular_expressions: dict[str, RegularExpressionValue]
    balance: Any

    def set_member(self, member_id: str, after: Any) -> None: ...

    def set_target(self, member_id: str, after: Assignment | None) -> None: ...


class ConsumerGroupUndo:
    def __init__(self, group: GroupParts) -> None:
        self._group = group
        self._fields = read_single_fields(group)
        self._members: dict[str, tuple[Any, Assignment | None, Any]] = {}
        self._expressions: dict[str, RegularExpressionValue | None] = {}

    def before_record(self, key: ConsumerGroupRecordKey) -> None:
        """Called before a record of this key is applied."""
        group = self._group
        if isinstance(key, ConsumerMemberKey | CurrentAssignmentKey | TargetAssignmentKey):
            if (member_id := key.member_id) not in self._members:
                parts = group.members.get(member_id), group.targets.get(member_id), group.deadlines.get(member_id)
                self._members[member_id] = parts
        elif isinstance(key, RegularExpressionKey):
            self._expressions.setdefault(key.regular_expression, group.regular_expressions.get(key.regular_expression))

    def undo(self) -> None:
        group = self._group
        group.balance = None  # computed again when needed: this is rare
        for name, value in zip(SINGLE_FIELDS, self._fields, strict=True):
            setattr(group, name, value)
        for member_id in self._members:  # first, so that nobody owns what another member gets back
            group.set_member(member_id, None)
        for member_id, (member, target, deadlines) in self._members.items():
            group.set_member(member_id, member)
            group.set_target(member_id, target)
            _put(group.deadlines, member_id, deadlines)
        for expression, value in self._expressions.items():
            _put(group.regular_expressions, expression, value)


def _put(entries: dict[str, ValueT], key: str, value: ValueT | None) -> None:
    if value is None:
        entries.pop(key, None)
    else:
        entries[key] = value
