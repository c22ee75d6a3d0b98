"""What one follower's fetch session holds: the partitions it copies from here, and which of them are stirred (by a new offset, an append, a high
watermark that rose, the metadata) and so are to be looked at."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla_broker.wire.leader_fetch import FollowerRequest, Wanted

if TYPE_CHECKING:
    from ottla_broker.replication.partition import Partition

Key = tuple[bytes, int]


class Place:
    """A partition of a session: what is wanted of it, and what the follower was last told. `noted`: whether its offset was. `asked_anew`: it has
    been asked for since, so that the follower may have passed over what it was told: it is told again with the next answer, news or not."""

    __slots__ = (
        "_session",
        "asked_anew",
        "epoch",
        "high_watermark",
        "index",
        "last_epoch",
        "log_start",
        "most",
        "noted",
        "offset",
        "partition",
        "start",
        "told_error",
        "topic",
    )

    def __init__(self, session: "FollowersSession", topic: bytes, index: int) -> None:
        self.topic = topic
        self.index = index
        self.partition: Partition | None = None  # where we watch
        self.high_watermark = -1
        self.log_start = -1
        self.told_error = False
        self._session = session

    def want(self, wanted: Wanted) -> None:
        _, self.epoch, self.offset, self.last_epoch, self.start, self.most = wanted
        self.noted = False
        self.asked_anew = True

    def has_news(self) -> bool:
        partition = self.partition
        assert partition is not None
        log = partition.log
        return log.high_watermark != self.high_watermark or log.start != self.log_start or self.told_error

    def is_owed(self) -> bool:
        """Whether the follower does not know that everything of earlier epochs is committed, or which records are to go while somebody waits for that."""
        partition = self.partition
        if partition is None:
            return False
        if max(self.high_watermark, 0) < partition.epoch_start_offset:
            return True
        return self.log_start != partition.log.start and bool(partition.log_start_waiters.waiting)

    def told(self) -> tuple[int, int]:
        """(high watermark, log start), which the follower hears now."""
        partition = self.partition
        assert partition is not None
        self.high_watermark, self.log_start = partition.log.high_watermark, partition.log.start
        self.told_error = self.asked_anew = False
        return self.high_watermark, self.log_start

    def failed(self) -> None:
        self.told_error = True

    def watch(self, partition: "Partition") -> None:
        if self.partition is not partition:
            self.rest()
            self.partition = partition
            partition.read_waiters.add(self.tell)
            partition.log_end_waiters.add(self.stir)

    def rest(self) -> None:
        if self.partition is not None:
            self.partition.read_waiters.remove(self.tell)
            self.partition.log_end_waiters.remove(self.stir)
            self.partition = None

    def stir(self) -> None:
        """The log has grown, or something else has happened to the partition."""
        session = self._session
        session.stirred[self] = None
        if session.wake is not None:
            session.wake()

    def tell(self) -> None:
        """The high watermark rose."""
        session = self._session
        session.stirred[self] = None
        if session.wake is not None and (session.prompt or self.is_owed()):
            session.wake()


class FollowersSession:
    """`stirred`: what to look at; what gave records stands behind what did not. `wake`: of the fetch that waits."""

    __slots__ = ("epoch", "id", "places", "prompt", "replica", "replica_epoch", "stirred", "used_s", "wake")

    def __init__(self, session_id: int, request: FollowerRequest, prompt: bool, now_s: float) -> None:
        self.id = session_id
        self.epoch = 0
        self.replica = request.replica
        self.replica_epoch = request.replica_epoch
        self.prompt = prompt
        self.used_s = now_s
        self.places: dict[Key, Place] = {}
        self.stirred: dict[Place, None] = {}
        self.wake: Callable[[], None] | None = None

    def change(self, request: FollowerRequest) -> None:
        places, stirred = self.places, self.stirred
        for topic, wanted in request.changed:
            key = topic, wanted[0]
            place = places.get(key)
            if place is None:
                place = places[key] = Place(self, *key)
            place.want(wanted)
            stirred[place] = None
        for key in request.forgotten:
            gone = places.pop(key, None)
            if gone is not None:
                stirred.pop(gone, None)
                gone.rest()

    def end(self) -> None:
        for place in self.places.values():
            place.rest()
