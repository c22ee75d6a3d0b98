"""The records that one operation on a group of the newer protocols makes. Each is applied to the
group at once; all are undone if they cannot be appended.
"""

from dataclasses import fields
from typing import Any, Generic, Protocol, TypeVar


class Undo(Protocol):
    """Made before a group changes."""

    def before_record(self, key: Any) -> None:
        """Called before a record of this key is applied."""
        ...

    def undo(self) -> None:
        """Returns the group to the state in which this was made."""
        ...


class RecordedGroup(Protocol):
    """A group whose records are its state."""

    id: str

    def apply(self, key: Any, value: Any) -> None: ...

    def prepare_undo(self) -> Undo: ...


GroupT = TypeVar("GroupT", bound=RecordedGroup)
KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class GroupChange(Generic[GroupT, KeyT, ValueT]):
    def __init__(self, group: GroupT) -> None:
        self.group = group
        self.records: list[tuple[KeyT, ValueT | None]] = []
        self._undo: Undo | None = None

    def write(self, key: KeyT, value: ValueT | None) -> None:
        """`value` None: a tombstone."""
        self.add_record(key, value)
        self.group.apply(key, value)

    def add_record(self, key: KeyT, value: ValueT | None) -> None:
        """Like `write`, but the caller applies the record to the group."""
        if self._undo is None:
            self._undo = self.group.prepare_undo()
        self._undo.before_record(key)
        self.records.append((key, value))

    def undo(self) -> None:
        """Returns the group to the state before the first record."""
        if self._undo is not None:
            self._undo.undo()
            self._undo = None
        self.records.clear()


class GroupCopyUndo:
    """The `Undo` of groups that are dataclasses and have few members: keeps a copy of the whole
    group. `copy` shares nothing with `group` that `apply` changes in place."""

    def __init__(self, group: Any, copy: Any) -> None:
        self._group = group
        self._copy = copy

    def before_record(self, key: Any) -> None:
        """Everything has been copied."""

    def undo(self) -> None:
        for one in fields(self._copy):
            setattr(self._group, one.name, getattr(self._copy, one.name))
