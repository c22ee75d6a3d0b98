"""The records that one operation on a group of the newer protocols makes. Each is applied to the
group at once; all are undone if they cannot be appended.
"""

from dataclasses import fields
from typing import Any, Generic, Protocol, Self, TypeVar


class RecordedGroup(Protocol):
    """A group, a dataclass, whose records are its state."""

    id: str

    def apply(self, key: Any, value: Any) -> None: ...

    def copy_state(self) -> Self:
        """A copy to return to. It shares nothing with the group that `apply` changes in place."""
        ...


GroupT = TypeVar("GroupT", bound=RecordedGroup)
KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class GroupChange(Generic[GroupT, KeyT, ValueT]):
    def __init__(self, group: GroupT) -> None:
        self.group = group
        self.records: list[tuple[KeyT, ValueT | None]] = []
        self._before: GroupT | None = None

    def write(self, key: KeyT, value: ValueT | None) -> None:
        """`value` None: a tombstone."""
        if self._before is None:
            self._before = self.group.copy_state()
        self.records.append((key, value))
        self.group.apply(key, value)

    def undo(self) -> None:
        """Returns the group to the state before the first record."""
        before: Any = self._before
        if before is not None:
            for one in fields(before):
                setattr(self.group, one.name, getattr(before, one.name))
            self._before = None
        self.records.clear()
