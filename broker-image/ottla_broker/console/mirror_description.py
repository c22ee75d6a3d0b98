"""A mirror as its page shows it: topics with their lag, and what to check before a failover.
Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.config import FAILED_OVER
from ottla_broker.console.cluster_requests import UNKNOWN, sum_known
from ottla_broker.counted_nouns import count_noun
from ottla_broker.mirroring.mirror_config import MirrorConfig
from ottla_broker.requests.mirror_status import PartitionStatus

UNREPORTED: Final = "Unreported"
"""State of a partition that has no leader, or whose leader does not respond."""
ENDED: Final = ("FailedOver", "FailingOver")
NEEDS_OPERATOR: Final = ("Stopped", "Diverged")
MAX_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class CopiedPartition:
    """A partition of a mirrored topic. `status`: as its leader reports it; None without a
    report.
    """

    topic: str
    partition: int
    status: PartitionStatus | None = None

    @property
    def state(self) -> str:
        return UNREPORTED if self.status is None else self.status.state

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class MirroredTopic:
    """A topic that a mirror copies. `states`: each with its number of partitions."""

    name: str
    source_topic: str
    partitions: Sequence[CopiedPartition]

    @property
    def states(self) -> list[tuple[str, int]]:
        return sorted(Counter(one.state for one in self.partitions).items())

    @property
    def lag(self) -> int:
        """Records that are not copied; −1 if the number is unknown for any partition."""
        return sum_known(one.status.lag if one.status else UNKNOWN for one in self.partitions)

    @property
    def lag_bytes(self) -> int:
        return sum_known(one.status.lag_bytes if one.status else UNKNOWN for one in self.partitions)

    @property
    def lag_s(self) -> float:
        """The longest lag of a partition; −1 if it is unknown for all."""
        return max((one.status.lag_seconds for one in self.partitions if one.status), default=UNKNOWN)

    @property
    def reason(self) -> str:
        """Why the first partition that has a problem has it; empty without one."""
        return next((one.status.why for one in self.partitions if one.status and one.status.why), "")


@dataclass(frozen=True, slots=True)
class ReportedMirrorProblems:
    """Problems of a mirror that its controller reports. `source_error`: why the source cannot be
    read. `refused`: topics that nothing is copied into, and why. `failure`: why the controller does
    not report. `target_error`: the error of this cluster that ended the last synchronisation.
    """

    source_error: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""
    target_error: str = ""


@dataclass(frozen=True, slots=True)
class ChecklistItem:
    """`is_met`: None if brokers cannot know it, so that a person has to check it."""

    is_met: bool | None
    text: str


def check_failover(
    config: MirrorConfig, topics: Sequence[MirroredTopic], problems: ReportedMirrorProblems
) -> Iterator[ChecklistItem]:
    """The checklist of a failover: what it would find and lose now, or what is still to be done
    after it.
    """
    partitions = [one for topic in topics for one in topic.partitions]
    if config.role == FAILED_OVER:
        not_ended = [one.name for one in partitions if one.state not in ENDED]
        failing = [one.name for one in partitions if one.state == "FailingOver"]
        yield ChecklistItem(not not_ended, f"Copying has ended{describe_exceptions(not_ended)}.")
        yield ChecklistItem(not failing, f"Producers may write to every partition{describe_exceptions(failing)}.")
        return
    yield ChecklistItem(None, "Producers of the source are stopped, or cannot reach it any more.")
    yield ChecklistItem(bool(partitions), "Topics are mirrored." if partitions else "No topic is mirrored.")
    unreported = [one.name for one in partitions if one.status is None]
    yield ChecklistItem(
        not unreported, f"The leader of every partition reports its state{describe_exceptions(unreported)}."
    )
    bad = [one.name for one in partitions if one.state in NEEDS_OPERATOR]
    yield ChecklistItem(not bad, f"No partition has stopped or diverged{describe_exceptions(bad)}.")
    yield _check_source(partitions, problems)
    if problems.target_error:
        yield ChecklistItem(False, f"Topics, groups and access rules are not synchronised: {problems.target_error}.")
    known_lag = sum(max(one.status.lag, 0) for one in partitions if one.status)
    unknown = [one.name for one in partitions if one.status is None or one.status.lag == UNKNOWN]
    text = "Every record of the source that is known here is copied"
    if known_lag:
        text = f"{known_lag:,} record{'s are' if known_lag > 1 else ' is'} not copied, and would be lost here"
    yield ChecklistItem(
        not known_lag and not unknown, text + describe_exceptions(unknown, "the lag is unknown for") + "."
    )
    refused = [f"{topic} ({why})" for topic, why in sorted(problems.refused.items())]
    yield ChecklistItem(not refused, f"No topic is refused{describe_exceptions(refused)}.")
    if config.groups:
        text = f"Offsets of groups are copied: {', '.join(config.groups)}."
    else:
        text = "Offsets of groups are not copied: consumers begin where auto.offset.reset says."
    yield ChecklistItem(bool(config.groups), text)
    yield ChecklistItem(None, "Clients know the bootstrap servers of this cluster, and may log in and write here.")


def _check_source(partitions: Sequence[CopiedPartition], problems: ReportedMirrorProblems) -> ChecklistItem:
    if problems.source_error:
        return ChecklistItem(False, f"The source cannot be read: {problems.source_error}.")
    if problems.failure:
        return ChecklistItem(False, f"The controller does not report on the source: {problems.failure}.")
    silent = [one for one in partitions if one.state == "Unreachable" and one.status is not None]
    if not silent:
        return ChecklistItem(True, "The source responds.")
    longest_s = max(one.status.silent_seconds for one in silent if one.status)
    return ChecklistItem(
        False,
        f"The source of {count_noun(len(silent), 'partition')} has not responded for up to "
        f"{max(longest_s, 0):.0f} seconds: records written there since are unknown here.",
    )


def describe_exceptions(names: Sequence[str], words: str = "not so for") -> str:
    """`; not so for t-0, t-1, t-2 and 4 more`; empty without names."""
    if not names:
        return ""
    more = len(names) - MAX_NAMED
    return f"; {words} {', '.join(names[:MAX_NAMED])}{f' and {more} more' if more > 0 else ''}"
