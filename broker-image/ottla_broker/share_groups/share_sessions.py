"""Share sessions: which partitions a member fetches from this broker (KIP-932).

A member opens a session with epoch 0 and closes it with epoch −1; each request in between has the
next epoch. A repeated or a lost request makes the epochs differ: INVALID_SHARE_SESSION_EPOCH.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.metadata.partition_index import TopicIdPartition
from ottla_broker.wire.errors import ErrorCode, KafkaError

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
LAST_EPOCH: Final = 2**31 - 1


@dataclass(slots=True, eq=False)
class ShareSession:
    """`epoch`: the epoch that the next request must have. `partitions`: keys in the order in which
    they are read next. `is_closed`: no more records are delivered."""

    group_id: str
    member_id: str
    epoch: int = 1
    partitions: dict[TopicIdPartition, None] = field(default_factory=dict)
    is_closed: bool = False

    def update(self, added: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]) -> None:
        self.partitions.update(dict.fromkeys(added))
        for partition in forgotten:
            self.partitions.pop(partition, None)

    def rotate(self) -> None:
        """Moves the first partition to the end, so that each is read first in turn."""
        if self.partitions:
            first = next(iter(self.partitions))
            del self.partitions[first]
            self.partitions[first] = None


class ShareSessions:
    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str], ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, group_id: str, member_id: str, max_sessions: int) -> ShareSession:
        """A new session, in place of one that the member has. Raises
        SHARE_SESSION_LIMIT_REACHED."""
        key = group_id, member_id
        if key not in self._sessions and len(self._sessions) >= max_sessions:
            raise KafkaError(
                ErrorCode.share_session_limit_reached,
                f"this broker has {len(self._sessions)} share sessions (group.share.max.share.sessions)",
            )
        session = self._sessions[key] = ShareSession(group_id, member_id)
        return session

    def find(self, group_id: str, member_id: str) -> ShareSession:
        """Raises SHARE_SESSION_NOT_FOUND."""
        if (session := self._sessions.get((group_id, member_id))) is None:
            raise KafkaError(ErrorCode.share_session_not_found, f"member {member_id} has no share session here")
        return session

    def proceed(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """The session for a request with this epoch; advances the session's epoch, unless `epoch`
        is FINAL_EPOCH. Raises SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH."""
        session = self.find(group_id, member_id)
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.epoch:
            raise KafkaError(
                ErrorCode.invalid_share_session_epoch, f"share session epoch {epoch}; {session.epoch} is expected"
            )
        session.epoch = 1 if session.epoch == LAST_EPOCH else session.epoch + 1
        return session

    def close(self, session: ShareSession) -> None:
        session.is_closed = True
        if self._sessions.get((session.group_id, session.member_id)) is session:
            del self._sessions[session.group_id, session.member_id]
