"""A fetch whose partitions change while it reads them."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from ottla_broker.requests.fetch_until_due import Fetch
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.fetch_response import FetchResponsePartition


@dataclass(eq=False)
class Cached:
    number: int
    has_more: bool = False
    partition: None = None


@dataclass(eq=False)
class Session:
    is_replica: bool = True
    changed: dict[Cached, None] = field(default_factory=dict)


@dataclass
class CommittingReader:
    """To read partition 0 commits records, and their producer appends to partition 1 at once."""

    session: Session

    def read(self, cached: Cached, max_bytes: int, *, first: bool) -> FetchResponsePartition:
        if cached.number == 0:
            self.session.changed[Cached(1)] = None
        data = FetchResponsePartition("t", cached.number, ErrorCode.none)
        data.records = b"records" if cached.number else b""
        return data

    def is_due(self, cached: Cached, data: FetchResponsePartition) -> bool:
        return False


def test_partitions_that_change_while_a_fetch_reads_are_read_too() -> None:
    session: Any = Session()
    session.changed[Cached(0)] = None
    request, reader = SimpleNamespace(min_bytes=1), CommittingReader(session)
    arguments: Any = (None, 1, request, session, reader, True, lambda _: None, 100)
    fetch = Fetch(*arguments)
    assert fetch.read(), "the records are found"
    assert fetch.size == len(b"records")
