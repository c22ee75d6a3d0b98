"""What to set so that a mirror becomes what its Mirror resource wishes, and what is to be said of it. Pure.

Invariants: setting the changes and asking again yields none; a failover that the resource never wished for is not taken back, because copies that take
records of their own would be closed to those who write them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla_operator.plan import source_credentials
from ottla_operator.plan.conditions import ExtraCondition, Readiness, Ready, Reconciling, Stalled
from ottla_operator.plan.source_credentials import HIDDEN_SETTINGS, VERSION_SETTING
from ottla_operator.resources.common import parse_quantity
from ottla_operator.resources.mirror import Mirror
from ottla_operator.resources.model import Json

REPLICATE: Final = "Replicate"
PAUSED: Final = "Paused"
FAILED_OVER: Final = "FailedOver"
DIVERGED: Final = "Diverged"
FAILING_OVER: Final = "FailingOver"
UNREACHABLE: Final = "Unreachable"
REFUSED: Final = "Refused"
UNREPORTED: Final = "Untold"
"""Of a partition of which nobody tells now. Nothing follows from it but that it is not known how far it is."""

UNKNOWN: Final = -1
ROLE: Final = "role"
OPTIONAL_SETTINGS: Final = (
    "groups",
    "prefix",
    "offsets",
    "throttled.rate",
    *source_credentials.SETTING_NAMES,
)  # when a resource wishes for them no more
MAX_TOPICS: Final = (
    500  # told of one by one: an object holds a megabyte, and what it names once more where its fields are managed
)
MAX_NAMED: Final = 3  # partitions, in a sentence
SILENCE_S: Final = (
    5.0  # before that a source is not said to be silent: it answers every half second, unless another time was set
)


@dataclass(frozen=True, slots=True)
class ObservedMirrorPartition:
    """A copied partition as its leader tells. `end`: of its log, or where its own records begin since a failover. `source_end`, `lag`,
    `lag_seconds`: −1 when not known. `diverging`: records that are here and not at the source, for whose end there is no consent;
    `lag_bytes`: about; `silent_seconds`: since the source's broker answered last."""

    topic: str
    partition: int
    state: str
    end: int
    source_end: int = UNKNOWN
    lag: int = UNKNOWN
    lag_seconds: float = UNKNOWN
    source_epoch: int = UNKNOWN
    reason: str = ""
    diverging_records: int = 0
    lag_bytes: int = UNKNOWN
    silent_seconds: float = UNKNOWN


@dataclass(frozen=True, slots=True)
class ObservedMirror:
    """What brokers say of a mirror itself. `settings`: those that were set; `trouble`: why its source cannot be looked at, empty when it can; `refused`: by
    topic here, why it is not copied into."""

    settings: Mapping[str, str] = field(default_factory=dict)
    source_error: str = ""
    refused_topics: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UnsupportedField:
    """A wish that brokers cannot fulfil yet. `field`: of the spec."""

    field: str
    reason: str


def mirror_settings(mirror: Mirror, source: str) -> dict[str, str]:
    """As brokers name them. `source`: addresses of the source's brokers."""
    spec, sync = mirror.spec, mirror.spec.sync
    groups = () if sync is not None and sync.groups is False else spec.groups or ()
    found = {
        "bootstrap.servers": source,
        "topics": ",".join(spec.topics),
        "groups": ",".join(groups),
        ROLE: spec.role or REPLICATE,
        "on.source.truncation": spec.on_source_truncation or "Stop",
        "on.divergence": spec.on_divergence or "Stop",
        "throttled.rate": "" if spec.throttle is None else str(max(round(parse_quantity(spec.throttle)), 1)),
        "sync.configs": "false" if sync is not None and sync.configs is False else "true",
        "prefix": spec.prefix or "",
        "offsets": spec.offsets if spec.offsets == "Appended" else "",
    }
    return {name: value for name, value in found.items() if value or name not in OPTIONAL_SETTINGS}


def plan_mirror_changes(wanted: Mapping[str, str], seen: Mapping[str, str]) -> dict[str, str | None]:
    """`seen`: what was set. None takes a setting off; what the resource does not speak of (how often a source is asked) is left as it is."""
    put: dict[str, str | None] = {name: value for name, value in wanted.items() if seen.get(name) != value}
    if wanted.get(VERSION_SETTING) == seen.get(VERSION_SETTING):
        put = {
            name: value for name, value in put.items() if name not in HIDDEN_SETTINGS
        }  # set already, though nobody shows it
    return put | {name: None for name in OPTIONAL_SETTINGS if name in seen and name not in wanted}


def unsupported_fields(mirror: Mirror) -> list[UnsupportedField]:
    spec = mirror.spec
    found = {
        "sync.acls": bool(spec.sync and spec.sync.acls),
    }
    missing = [UnsupportedField(field, "is not served yet; leave it out") for field, wished in found.items() if wished]
    if spec.offsets == "Appended" and spec.groups:
        missing.append(
            UnsupportedField(
                "groups", "cannot be copied with offsets: Appended, which are others than the source's; leave it out"
            )
        )
    return missing


def find_unsupported(mirror: Mirror) -> str:
    """Why it cannot be served, in words; empty when it can."""
    return "; ".join(f"spec.{it.field} {it.reason}" for it in unsupported_fields(mirror))


def find_unrequested_failover(wanted: Mapping[str, str], set_: Mapping[str, str], before: str | None) -> Stalled | None:
    """What to say when brokers were told to fail over, and the resource has never wished for it. `set_`: the brokers' settings; `before`: the role that the
    resource wished for last, None when that is not known."""
    if set_.get(ROLE) != FAILED_OVER or FAILED_OVER in (wanted[ROLE], before):
        return None
    return Stalled(
        "FailedOver",
        f"the brokers were told to fail over, not by this Mirror, whose role is {wanted[ROLE]}: set role: FailedOver here too; to copy again, set it back after that",
    )


def evaluate_mirror(
    wanted: Mapping[str, str], seen: Sequence[ObservedMirrorPartition], itself: ObservedMirror
) -> Readiness:
    """Of a mirror whose settings are as wished."""
    seen = [it for it in seen if it.state != UNREPORTED]
    stopped = [it for it in seen if it.state == "Stopped"]
    if stopped:
        first = stopped[0]
        more = f" (and {len(stopped) - 1} more)" if len(stopped) > 1 else ""
        return Stalled("SourceParted", f"{first.topic}-{first.partition} stands still: {first.reason}{more}")
    if diverged := [it for it in seen if it.state == DIVERGED]:
        return Stalled("Diverged", _diverged(diverged))
    if wanted[ROLE] == FAILED_OVER:
        opening = [it for it in seen if it.state != FAILED_OVER]
        if opening:
            return Reconciling("FailingOver", f"{len(opening)} of {len(seen)} partitions are not open for writing yet")
        return Ready(_failed_over(seen), "FailedOver")
    if wanted[ROLE] == PAUSED:
        return Ready("nothing is copied, as wished", "Paused")
    away = [it for it in seen if it.state == UNREACHABLE]
    if away:
        return Reconciling("SourceUnreachable", f"{away[0].topic}-{away[0].partition}: {away[0].reason}")
    if itself.source_error:
        return Reconciling("SourceUnreachable", itself.source_error)
    if over := sorted({it.topic for it in seen if it.state in (FAILED_OVER, FAILING_OVER)}):
        why = next((it for it in over if it in itself.refused_topics), None)
        if why is None:
            return Reconciling("Joining", f"{over[0]} has failed over, and is to become a copy again")
        return Stalled("FailedOver", f"nothing is copied into {why}: {itself.refused_topics[why]}")
    if joining := [it for it in seen if it.state == "Joining"]:
        more = f": {joining[0].reason}" if joining[0].reason else ""
        return Reconciling(
            "Joining", f"looking up to where {joining[0].topic}-{joining[0].partition} and its source are one log{more}"
        )
    if not seen:
        return Reconciling("NoTopics", f"no topic of the source is copied yet{_not_copied(itself)}")
    topics = len({it.topic for it in seen})
    return Ready(f"{topics} topics are copied, {_records(seen)} behind{_not_copied(itself)}.", "Replicating")


def mirror_conditions(seen: Sequence[ObservedMirrorPartition]) -> list[ExtraCondition]:
    """InSync: nothing was missing when the sources were last seen. FailoverSafe: a failover now would leave nothing behind that is known of."""
    missing = sum(max(it.lag, 0) for it in seen)
    unknown = sum(it.lag == UNKNOWN for it in seen)
    away = [it for it in seen if it.state in (UNREACHABLE, "Stopped")]
    over = [it for it in seen if it.state in (FAILED_OVER, FAILING_OVER)]
    if diverged := [it for it in seen if it.state == DIVERGED]:
        return [ExtraCondition(name, False, DIVERGED, _diverged(diverged)) for name in ("InSync", "FailoverSafe")]
    in_sync = bool(seen) and not missing and not unknown and not away and not over
    said = (
        f"{missing} records are missing"
        if missing
        else f"{unknown} partitions were not compared yet"
        if unknown
        else ""
    )
    why = said or (f"{len(away)} partitions do not see their source" if away else "")
    if over:
        compared = ExtraCondition(
            "InSync", False, FAILED_OVER, f"{len(over)} partitions have failed over, and are no copies"
        )
    else:
        compared = ExtraCondition("InSync", in_sync, "InSync" if in_sync else "Behind", why or "nothing is missing")
    return [
        compared,
        ExtraCondition(
            "FailoverSafe",
            bool(seen) and not missing and not unknown,
            "NothingMissing" if not missing and not unknown else "WouldLose",
            said or "a failover would leave nothing behind that was seen at the source",
        ),
    ]


def mirror_status_fields(
    wanted: Mapping[str, str], seen: Iterable[ObservedMirrorPartition], itself: ObservedMirror
) -> dict[str, Json]:
    """The Mirror's status, but for its conditions. What is not known of a topic is left out of it."""
    by_topic: dict[str, list[ObservedMirrorPartition]] = {}
    for it in seen:
        if it.state != UNREPORTED:
            by_topic.setdefault(it.topic, []).append(it)
    found = {name: _topic(name, parts) for name, parts in by_topic.items()}
    for name, why in itself.refused_topics.items():
        found.setdefault(name, {"topic": name, "state": REFUSED})["why"] = why
    topics = list(found.values())
    lags = [it["lagRecords"] for it in topics if "lagRecords" in it]
    seconds = [it["lagSeconds"] for it in topics if "lagSeconds" in it]
    return {
        "role": wanted[ROLE],
        "topics": sorted(sorted(topics, key=_calm)[:MAX_TOPICS], key=lambda it: str(it["topic"])),
        "lagRecords": sum(lags) if lags else None,
        "lagSeconds": max(seconds, default=None),
        "lagBytes": sum(it["lagBytes"] for it in topics if "lagBytes" in it) if lags else None,
        "silentSeconds": max((it["silentSeconds"] for it in topics if "silentSeconds" in it), default=None),
    }


def _calm(topic: Mapping[str, Json]) -> tuple[bool, int, str]:
    """The less there is to say of it, the larger."""
    return topic["state"] in ("Replicating", "Paused", "FailedOver"), -topic.get("lagRecords", 0), topic["topic"]


WORST_FIRST: Final = (
    "Stopped",
    "Diverged",
    UNREACHABLE,
    "Joining",
    FAILING_OVER,
    "Paused",
    "Replicating",
    "FailedOver",
)
STATES: Final = {UNREACHABLE: "Failed", "Diverged": "Stopped", "Joining": "Replicating", FAILING_OVER: "Replicating"}


def _topic(name: str, parts: Sequence[ObservedMirrorPartition]) -> dict[str, Json]:
    worst = min((it.state for it in parts), key=WORST_FIRST.index)
    known = [it for it in parts if it.lag != UNKNOWN]
    weighed = [it.lag_bytes for it in parts if it.lag_bytes != UNKNOWN]
    timed = [it.lag_seconds for it in parts if it.lag_seconds != UNKNOWN]
    epochs = [it.source_epoch for it in parts if it.source_epoch != UNKNOWN]
    silences = [it.silent_seconds for it in parts if it.silent_seconds >= SILENCE_S]
    found: dict[str, Json] = {
        "lagRecords": sum(it.lag for it in known) if known else None,
        "lagSeconds": max(timed, default=None),
        "lagBytes": sum(weighed) if weighed else None,
        "sourceEpoch": max(epochs, default=None),
        "silentSeconds": int(max(silences)) if silences else None,
        "why": next((it.reason for it in parts if it.state == worst and it.reason), None),
    }
    told = {key: value for key, value in found.items() if value is not None}
    return {"topic": name, "state": STATES.get(worst, worst), **told}


def _diverged(seen: Sequence[ObservedMirrorPartition]) -> str:
    """Which partitions have records that their source has not; else why the first cannot be joined to it."""
    counted = [f"{it.topic}-{it.partition}: {it.diverging_records}" for it in seen if it.diverging_records]
    if not counted:
        return f"{seen[0].topic}-{seen[0].partition} stands still: {seen[0].reason}"
    named, more = ", ".join(counted[:MAX_NAMED]), len(counted) - MAX_NAMED
    return (
        f"{sum(it.diverging_records for it in seen)} records are here and not at the source ({named}{f' and {more} more' if more > 0 else ''}); "
        "onDivergence: Truncate writes them to files and cuts them off"
    )


def _not_copied(itself: ObservedMirror) -> str:
    """The first of them, and why."""
    if not itself.refused_topics:
        return ""
    name, more = min(itself.refused_topics), len(itself.refused_topics) - 1
    return f"; {name} is not copied: {itself.refused_topics[name]}{f' (and {more} more)' if more else ''}"


def _failed_over(seen: Sequence[ObservedMirrorPartition]) -> str:
    missing = sum(max(it.lag, 0) for it in seen)
    unknown = sum(it.lag == UNKNOWN for it in seen)
    said = f"the source was {missing} records ahead when last seen"
    return f"open for writing; {said}{f', and was not seen for {unknown} partitions' if unknown else ''}"


def _records(seen: Sequence[ObservedMirrorPartition]) -> str:
    return f"{sum(max(it.lag, 0) for it in seen)} records"
