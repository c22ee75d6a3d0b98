"""The newest epoch that a broker knows, its leader and this broker's vote, in Kafka's file
`quorum-state` beside the metadata log.

The file is synced before any message leaves that follows from it, so that a restart neither votes
twice in an epoch nor goes back to an older one.
"""

from uuid import UUID

import msgspec

from ottla_broker.log.disk import Disk
from ottla_broker.metadata.raft_rules import ElectionState
from ottla_broker.metadata.voter_set import ReplicaKey, Voter, VoterSet
from ottla_broker.runtime import Runtime, uuid_from_text, uuid_text
from ottla_broker.wire.errors import ErrorCode, KafkaError

FILE_NAME = "quorum-state"
NO_VOTE = -1


class _StoredState(msgspec.Struct, rename="camel"):
    """Kafka's format, version 1."""

    leader_id: int
    leader_epoch: int
    voted_id: int
    voted_directory_id: str
    data_version: int = msgspec.field(default=1, name="data_version")


class _RegisterState(msgspec.Struct):
    """State in the format of Ottla 0.1, whose leader was elected through a register outside of the
    brokers.
    """

    epoch: int
    isr: tuple[Voter, ...]


def encode_election_state(state: ElectionState) -> bytes:
    """The content of the file."""
    voted_id, voted_directory = state.voted or (NO_VOTE, UUID(int=0))
    return msgspec.json.encode(_StoredState(state.leader, state.epoch, voted_id, uuid_text(voted_directory)))


class QuorumStateFile:
    """`stored`: the state in the file. `register_voters`: the voters of a file of Ottla 0.1, which
    is taken over when this broker was the only one. Raises KAFKA_STORAGE_ERROR when the file cannot
    be read or taken over."""

    def __init__(self, folder: str, disk: Disk, runtime: Runtime, me: ReplicaKey) -> None:
        self._path = f"{folder}/{FILE_NAME}"
        self._disk = disk
        self._runtime = runtime
        self.register_voters: VoterSet = ()
        self.stored = self._load(me)

    async def store(self, state: ElectionState) -> None:
        """Returns when the state is synced. Raises KAFKA_STORAGE_ERROR."""
        data = encode_election_state(state)
        try:
            await self._runtime.run_in_thread(self._disk.replace_file, self._path, data)
        except OSError as error:
            raise KafkaError(
                ErrorCode.kafka_storage_error, f"{self._path} cannot be written: {error.strerror or error}"
            ) from error
        self.stored = state

    def _load(self, me: ReplicaKey) -> ElectionState:
        try:
            if not self._disk.exists(self._path):
                return ElectionState()
            found = msgspec.json.decode(self._disk.read_file(self._path), type=dict[str, object])
            if "data_version" not in found:
                return self._take_over(msgspec.convert(found, _RegisterState), me)
            stored = msgspec.convert(found, _StoredState)
            voted = None
            if stored.voted_id != NO_VOTE:
                voted = ReplicaKey(stored.voted_id, uuid_from_text(stored.voted_directory_id))
            return ElectionState(stored.leader_epoch, stored.leader_id, voted)
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            raise KafkaError(ErrorCode.kafka_storage_error, f"{self._path} cannot be read: {error}") from error

    def _take_over(self, old: _RegisterState, me: ReplicaKey) -> ElectionState:
        """The state after a file of Ottla 0.1. Raises KAFKA_STORAGE_ERROR unless this broker was
        the only voter.
        """
        if [voter.key for voter in old.isr] != [me]:
            brokers = ", ".join(str(voter.broker) for voter in old.isr)
            raise KafkaError(
                ErrorCode.kafka_storage_error,
                f"{self._path} is of Ottla 0.1, whose voters were brokers {brokers}, elected through a register: "
                "with Ottla 0.1, scale the cluster down to one broker; upgrade that, and scale up again",
            )
        self.register_voters = old.isr
        return ElectionState(old.epoch)
