"""The voter sets of the metadata log, as control records of Kafka's own format (KIP-853), and which
of them is in effect.

A voter set is in effect from its append on. When its record is truncated, the one before it is
in effect again. A snapshot begins with the voter set in effect at its offset.
"""

from collections.abc import Iterable, Iterator
from uuid import UUID

from kio.schema.types import BrokerId
from kio.schema.voters_record.v0.data import Endpoint, KRaftVersionFeature, VotersRecord
from kio.schema.voters_record.v0.data import Voter as VoterEntry
from kio.static.primitive import i16, u16

from ottla_broker.config.addresses import format_host_and_port
from ottla_broker.metadata.voter_set import Voter, VoterSet
from ottla_broker.wire.batch import Buffer, iter_batches
from ottla_broker.wire.control_records import ControlRecordType, control_record_key, control_record_type
from ottla_broker.wire.message_reader import Cursor, message_reader
from ottla_broker.wire.message_writer import message_writer
from ottla_broker.wire.records import Record, encode_batch, iter_records

VOTER_LISTENER = "BROKERS"
NO_OFFSET = -1


class VoterHistory:
    """Voter sets with the offsets of their records, by rising offset. −1: from a snapshot, or of a
    founding broker, whose log has no such record yet.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[int, VoterSet]] = []

    @property
    def latest(self) -> VoterSet:
        """Empty before the log names voters."""
        return self._entries[-1][1] if self._entries else ()

    @property
    def latest_offset(self) -> int:
        return self._entries[-1][0] if self._entries else NO_OFFSET

    def at(self, offset: int) -> VoterSet:
        """The voter set that the records below `offset` result in."""
        return next((voters for at, voters in reversed(self._entries) if at < offset), ())

    def since(self, offset: int) -> Iterator[VoterSet]:
        """The voter set that the records below `offset` result in, and those after it."""
        yield self.at(offset)
        yield from (voters for at, voters in self._entries if at >= offset)

    def add(self, offset: int, voters: VoterSet) -> None:
        self._entries.append((offset, voters))

    def add_from_batches(self, data: Buffer) -> None:
        for offset, voters in iter_voter_sets(data):
            self.add(offset, voters)

    def truncate_to(self, offset: int) -> None:
        self._entries = [entry for entry in self._entries if entry[0] < offset]

    def restart(self, voters: VoterSet) -> None:
        """Forgets all sets and begins with these voters: of a snapshot, or a founding broker."""
        self._entries = [(NO_OFFSET, voters)] if voters else []


def encode_voters_batch(voters: VoterSet, now_ms: int, *, leader_epoch: int = -1) -> bytes:
    """A control batch with one KRaftVoters record."""
    value = bytearray()
    record = VotersRecord(version=i16(0), voters=tuple(_voter_entry(voter) for voter in voters))
    message_writer(VotersRecord)(value, record)
    key = control_record_key(ControlRecordType.kraft_voters)
    return encode_batch([Record(now_ms, key, bytes(value))], leader_epoch=leader_epoch, control=True)


def _voter_entry(voter: Voter) -> VoterEntry:
    endpoint, (lowest, highest) = voter.endpoint, voter.kraft_versions
    return VoterEntry(
        voter_id=BrokerId(voter.broker),
        voter_directory_id=voter.directory,
        endpoints=() if endpoint is None else (Endpoint(name=VOTER_LISTENER, host=endpoint[0], port=u16(endpoint[1])),),
        k_raft_version_feature=KRaftVersionFeature(
            min_supported_version=i16(lowest), max_supported_version=i16(highest)
        ),
    )


def iter_voter_sets(data: Buffer) -> Iterable[tuple[int, VoterSet]]:
    """The voter sets in whole batches with their offsets. Raises CORRUPT_MESSAGE."""
    for at, header in iter_batches(data):
        if not header.is_control:
            continue
        for _, record in iter_records(memoryview(data)[at : at + header.size]):
            if control_record_type(record) is ControlRecordType.kraft_voters and record.value is not None:
                yield record.offset, _decode_voters(record.value)


def _decode_voters(value: bytes) -> VoterSet:
    record: VotersRecord = message_reader(VotersRecord)(Cursor(value, 0))
    return tuple(map(_voter, record.voters))


def _voter(entry: VoterEntry) -> Voter:
    address = format_host_and_port(entry.endpoints[0].host, int(entry.endpoints[0].port)) if entry.endpoints else ""
    versions = entry.k_raft_version_feature
    return Voter(
        int(entry.voter_id),
        entry.voter_directory_id or UUID(int=0),
        address,
        (int(versions.min_supported_version), int(versions.max_supported_version)),
    )
