"""Plans the brokers' settings of a mirror according to its Mirror resource, and evaluates the
resource's status and conditions. Pure.

Invariants: after the changes are set, planning again yields none. A failover that the resource
never asked for is not reverted, because copies that accept producers would become read-only again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla_operator.formatting import format_count, format_list
from ottla_operator.plan import source_credentials
from ottla_operator.plan.conditions import ExtraCondition, Readiness, Ready, Reconciling, Stalled
from ottla_operator.plan.source_credentials import HIDDEN_SETTINGS, VERSION_SETTING
from ottla_operator.resources.common import parse_quantity
from ottla_operator.resources.mirror import SCHEMAS_TOPIC, Mirror
from ottla_operator.resources.model import Json

REPLICATE: Final = "Replicate"
PAUSED: Final = "Paused"
FAILED_OVER: Final = "FailedOver"

# States of partitions, as brokers report them.
STOPPED: Final = "Stopped"
DIVERGED: Final = "Diverged"
JOINING: Final = "Joining"
FAILING_OVER: Final = "FailingOver"
UNREACHABLE: Final = "Unreachable"
UNREPORTED: Final = "Unreported"
"""State of a partition that no broker reports now. It only means that its lag is unknown."""
REPLICATING: Final = "Replicating"
REFUSED: Final = "Refused"
"""State of a topic that no records are copied into."""
FAILED: Final = "Failed"
"""State of a mirror whose last synchronisation an error of the target has ended."""

SCHEMAS_COPIED: Final = "SchemasCopied"
UNKNOWN: Final = -1
ROLE: Final = "role"
OPTIONAL_SETTINGS: Final = (
    "groups",
    "users",
    "prefix",
    "offsets",
    "sync.acls",
    "throttled.rate",
    *source_credentials.SETTING_NAMES,
)
"""Settings that are unset when the resource no longer asks for them."""
MAX_TOPICS: Final = 500
"""Topics in a status: an object holds a megabyte, and names each of them again in its managed
fields.
"""
MAX_LISTED: Final = 3  # partitions in a message
SILENCE_S: Final = 5.0
"""Time without a response after which a source counts as silent. It responds every half second,
unless the interval is set.
"""


@dataclass(frozen=True, slots=True)
class ObservedMirrorPartition:
    """A copied partition as its leader reports it.

    `end`: the log end, or since a failover the offset at which its own records begin. `source_end`,
    `lag`, `lag_seconds`, `lag_bytes` (an estimate), `silent_seconds` (since the last response of
    the source's broker): UNKNOWN if not known. `diverging_records`: number of records that the
    source does not have and that may not be truncated.
    """

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
    """A mirror as the controller reports it. `settings`: those that are set. `source_error`: why
    the source cannot be read; empty if it can. `refused_topics`: topic of the target → why nothing
    is copied into it. `target_error`: the error of the target that ended the last synchronisation;
    empty if none did."""

    settings: Mapping[str, str] = field(default_factory=dict)
    source_error: str = ""
    refused_topics: Mapping[str, str] = field(default_factory=dict)
    target_error: str = ""


def mirror_settings(mirror: Mirror, source: str) -> dict[str, str]:
    """The brokers' settings of a mirror, except credentials. `source`: bootstrap addresses."""
    spec, sync = mirror.spec, mirror.spec.sync
    groups = () if sync is not None and sync.groups is False else spec.groups or ()
    settings = {
        "bootstrap.servers": source,
        "topics": ",".join(mirror.topic_patterns),
        "groups": ",".join(groups),
        "users": ",".join(spec.users or ()),
        ROLE: spec.role or REPLICATE,
        "on.source.truncation": spec.on_source_truncation or "Stop",
        "on.divergence": spec.on_divergence or "Stop",
        "throttled.rate": "" if spec.throttle is None else str(max(round(parse_quantity(spec.throttle)), 1)),
        "sync.configs": "false" if sync is not None and sync.configs is False else "true",
        **({"sync.acls": "true"} if sync is not None and sync.acls else {}),
        "prefix": spec.prefix or "",
        "offsets": spec.offsets if spec.offsets == "Appended" else "",
    }
    return {name: value for name, value in settings.items() if value or name not in OPTIONAL_SETTINGS}


def plan_mirror_changes(desired: Mapping[str, str], observed: Mapping[str, str]) -> dict[str, str | None]:
    """Settings to set; None unsets one. Settings without a field in the resource are not
    changed.
    """
    to_set = {name: value for name, value in desired.items() if observed.get(name) != value}
    if desired.get(VERSION_SETTING) == observed.get(VERSION_SETTING):  # hidden settings are set, though not shown
        to_set = {name: value for name, value in to_set.items() if name not in HIDDEN_SETTINGS}
    return to_set | {name: None for name in OPTIONAL_SETTINGS if name in observed and name not in desired}


def find_unsupported(mirror: Mirror) -> str:
    """The reason why brokers cannot do what the spec asks for; empty if they can."""
    if mirror.spec.offsets == "Appended" and mirror.spec.groups:
        return "spec.groups cannot be copied with offsets: Appended, which differ from the source's; leave it out"
    return ""


def find_unrequested_failover(
    desired: Mapping[str, str], observed: Mapping[str, str], reported_role: str | None
) -> Stalled | None:
    """Describes a failover that was ordered directly at the brokers and not by the resource.
    `reported_role`: the role that the resource asked for last; None if that is unknown.
    """
    if observed.get(ROLE) != FAILED_OVER or FAILED_OVER in (desired[ROLE], reported_role):
        return None
    return Stalled(
        FAILED_OVER,
        f"the mirror has failed over by another command while this Mirror has role {desired[ROLE]}: "
        "set role: FailedOver "
        "here too, and then the old role to copy again",
    )


def evaluate_mirror(
    desired: Mapping[str, str], partitions: Sequence[ObservedMirrorPartition], observed: ObservedMirror
) -> Readiness:
    """Evaluates a mirror that has its desired settings."""
    reported = [it for it in partitions if it.state != UNREPORTED]
    if stopped := [it for it in reported if it.state == STOPPED]:
        more = f" (and {len(stopped) - 1} more)" if len(stopped) > 1 else ""
        return Stalled("SourceTruncated", f"{_name(stopped[0])} is stopped: {stopped[0].reason}{more}")
    if diverged := [it for it in reported if it.state == DIVERGED]:
        return Stalled(DIVERGED, _describe_divergence(diverged))
    if desired[ROLE] == FAILED_OVER:
        if opening := [it for it in reported if it.state != FAILED_OVER]:
            message = f"{len(opening)} of {format_count(len(reported), 'partition')} not writable yet"
            return Reconciling(FAILING_OVER, message)
        return Ready(_describe_failover(reported), FAILED_OVER)
    if desired[ROLE] == PAUSED:
        return Ready("copying is paused", PAUSED)
    if unreachable := [it for it in reported if it.state == UNREACHABLE]:
        return Reconciling("SourceUnreachable", f"{_name(unreachable[0])}: {unreachable[0].reason}")
    if observed.source_error:
        return Reconciling("SourceUnreachable", observed.source_error)
    if observed.target_error:
        return Reconciling("RetryingAfterError", observed.target_error)
    if failed_over := sorted({it.topic for it in reported if it.state in (FAILED_OVER, FAILING_OVER)}):
        refused = next((it for it in failed_over if it in observed.refused_topics), None)
        if refused is None:
            return Reconciling("JoiningSource", f"{failed_over[0]} has failed over and is becoming a copy again")
        return Stalled(FAILED_OVER, f"nothing is copied into {refused}: {observed.refused_topics[refused]}")
    if joining := [it for it in reported if it.state == JOINING]:
        reason = f": {joining[0].reason}" if joining[0].reason else ""
        return Reconciling(
            "JoiningSource", f"finding the offset up to which {_name(joining[0])} equals its source{reason}"
        )
    if not reported:
        return Reconciling(
            "NoTopicsMatched", f"no topic of the source is copied yet{_describe_refused_topics(observed)}"
        )
    topics = format_count(len({it.topic for it in reported}), "topic")
    lag, unknown = format_count(_known_lag(reported), "record"), sum(it.lag == UNKNOWN for it in reported)
    more = f" ({_describe_unknown_lag(unknown)})" if unknown else ""
    return Ready(f"{topics} copied, {lag} behind{more}{_describe_refused_topics(observed)}.", REPLICATING)


def schemas_condition(
    mirror: Mirror, partitions: Sequence[ObservedMirrorPartition], observed: ObservedMirror
) -> list[ExtraCondition]:
    """The condition SchemasCopied of a mirror with `sync.schemas`: True while `_schemas` is copied
    and no record of it is missing. Otherwise it has the reason that Ready would have if the mirror
    had no other topic.
    """
    if mirror.spec.sync is None or not mirror.spec.sync.schemas:
        return []
    if (reason := observed.refused_topics.get(SCHEMAS_TOPIC)) is not None:
        return [ExtraCondition(SCHEMAS_COPIED, False, "SchemasRefused", f"{SCHEMAS_TOPIC} is not copied: {reason}")]
    copies = [it for it in partitions if it.topic == SCHEMAS_TOPIC]
    if not copies:
        message = f"no topic {SCHEMAS_TOPIC} is copied yet: the source has none, or it could not be read yet"
        return [ExtraCondition(SCHEMAS_COPIED, False, "NoSchemas", message)]
    if reported := [it for it in copies if it.state != UNREPORTED]:
        readiness = evaluate_mirror({ROLE: mirror.spec.role or REPLICATE}, reported, ObservedMirror())
        if readiness.reason != REPLICATING:
            return [ExtraCondition(SCHEMAS_COPIED, False, readiness.reason, readiness.message)]
    if missing := _describe_missing_records(copies):
        return [ExtraCondition(SCHEMAS_COPIED, False, "Lagging", f"{SCHEMAS_TOPIC}: {missing}")]
    return [ExtraCondition(SCHEMAS_COPIED, True, "SchemasCopied", "Subjects, versions and ids are the source's.")]


def mirror_conditions(partitions: Sequence[ObservedMirrorPartition]) -> list[ExtraCondition]:
    """The conditions InSync and FailoverSafe.

    - InSync: no record is missing, and no partition is stopped, diverged, failed over or cut off
      from its source.
    - FailoverSafe: a failover now would lose no known record. It may be True while a source does
      not respond, if no record was missing when it last did.
    """
    if not partitions:
        message = "no topic is copied yet"
        return [ExtraCondition(name, False, "NoTopicsMatched", message) for name in ("InSync", "FailoverSafe")]
    stopped = [it for it in partitions if it.state in (UNREACHABLE, STOPPED)]
    failed_over = [it for it in partitions if it.state in (FAILED_OVER, FAILING_OVER)]
    if diverged := [it for it in partitions if it.state == DIVERGED]:
        return [
            ExtraCondition(name, False, DIVERGED, _describe_divergence(diverged)) for name in ("InSync", "FailoverSafe")
        ]
    why = _describe_missing_records(partitions)
    in_sync = not why and not stopped and not failed_over
    if failed_over:
        message = f"{format_count(len(failed_over), 'partition')} failed over, and no longer copied"
        compared = ExtraCondition("InSync", False, FAILED_OVER, message)
    else:
        message = f"{format_count(len(stopped), 'partition')} stopped or cut off from the source" if stopped else ""
        reason = "InSync" if in_sync else "Lagging"
        compared = ExtraCondition("InSync", in_sync, reason, why or message or "no record is missing")
    reason = "RecordsMissing" if why else "NoKnownLoss"
    message = why or "a failover would lose no record that was seen at the source"
    return [compared, ExtraCondition("FailoverSafe", not why, reason, message)]


def mirror_status_fields(
    desired: Mapping[str, str], partitions: Iterable[ObservedMirrorPartition], observed: ObservedMirror
) -> dict[str, Json]:
    """A Mirror's status without its conditions. Unknown values of a topic are left out."""
    by_topic: dict[str, list[ObservedMirrorPartition]] = {}
    for partition in partitions:
        if partition.state != UNREPORTED:
            by_topic.setdefault(partition.topic, []).append(partition)
    found = {name: _topic_status(name, its) for name, its in by_topic.items()}
    for name, reason in observed.refused_topics.items():
        found.setdefault(name, {"topic": name, "state": REFUSED})["why"] = reason
    topics = list(found.values())
    lags = [it["lagRecords"] for it in topics if "lagRecords" in it]
    seconds = [it["lagSeconds"] for it in topics if "lagSeconds" in it]
    return {
        "role": desired[ROLE],
        "topics": sorted(sorted(topics, key=_worst_first)[:MAX_TOPICS], key=lambda it: str(it["topic"])),
        "lagRecords": sum(lags) if lags else None,
        "lagSeconds": max(seconds, default=None),
        "lagBytes": sum(it["lagBytes"] for it in topics if "lagBytes" in it) if lags else None,
        "silentSeconds": max((it["silentSeconds"] for it in topics if "silentSeconds" in it), default=None),
    }


def _worst_first(topic: Mapping[str, Json]) -> tuple[bool, int, str]:
    return topic["state"] in (REPLICATING, PAUSED, FAILED_OVER), -topic.get("lagRecords", 0), topic["topic"]


WORST_FIRST: Final = (STOPPED, DIVERGED, UNREACHABLE, JOINING, FAILING_OVER, PAUSED, REPLICATING, FAILED_OVER)
TOPIC_STATES: Final = {UNREACHABLE: "Failed", DIVERGED: STOPPED, JOINING: REPLICATING, FAILING_OVER: REPLICATING}


def _topic_status(name: str, partitions: Sequence[ObservedMirrorPartition]) -> dict[str, Json]:
    worst = min((it.state for it in partitions), key=WORST_FIRST.index)
    lags = [it.lag for it in partitions if it.lag != UNKNOWN]
    lags_bytes = [it.lag_bytes for it in partitions if it.lag_bytes != UNKNOWN]
    lags_s = [it.lag_seconds for it in partitions if it.lag_seconds != UNKNOWN]
    epochs = [it.source_epoch for it in partitions if it.source_epoch != UNKNOWN]
    silences_s = [it.silent_seconds for it in partitions if it.silent_seconds >= SILENCE_S]
    found: dict[str, Json] = {
        "lagRecords": sum(lags) if lags else None,
        "lagSeconds": max(lags_s, default=None),
        "lagBytes": sum(lags_bytes) if lags_bytes else None,
        "sourceEpoch": max(epochs, default=None),
        "silentSeconds": int(max(silences_s)) if silences_s else None,
        "why": next((it.reason for it in partitions if it.state == worst and it.reason), None),
    }
    known = {key: value for key, value in found.items() if value is not None}
    return {"topic": name, "state": TOPIC_STATES.get(worst, worst), **known}


def _name(partition: ObservedMirrorPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def _describe_divergence(partitions: Sequence[ObservedMirrorPartition]) -> str:
    """Partitions with records that the source does not have; otherwise why the first cannot become
    a copy.
    """
    counted = [f"{_name(it)}: {it.diverging_records}" for it in partitions if it.diverging_records]
    if not counted:
        return f"{_name(partitions[0])} is stopped: {partitions[0].reason}"
    count = sum(it.diverging_records for it in partitions)
    return (
        f"{format_count(count, 'record')} {'is' if count == 1 else 'are'} here and not at the source "
        f"({format_list(counted, MAX_LISTED)}); onDivergence: Truncate writes them to files and truncates the logs"
    )


def _describe_refused_topics(observed: ObservedMirror) -> str:
    """The first topic that is not copied, and why."""
    if not observed.refused_topics:
        return ""
    name, more = min(observed.refused_topics), len(observed.refused_topics) - 1
    return f"; {name} is not copied: {observed.refused_topics[name]}{f' (and {more} more)' if more else ''}"


def _describe_missing_records(partitions: Sequence[ObservedMirrorPartition]) -> str:
    """The records of the source that are not copied yet, or may not be; empty if there are none."""
    if missing := _known_lag(partitions):
        return f"{format_count(missing, 'record')} not copied yet"
    unknown = sum(it.lag == UNKNOWN for it in partitions)
    return _describe_unknown_lag(unknown) if unknown else ""


def _describe_unknown_lag(partition_count: int) -> str:
    return f"lag of {format_count(partition_count, 'partition')} unknown"


def _describe_failover(partitions: Sequence[ObservedMirrorPartition]) -> str:
    if not partitions:
        return "failed over; no broker reports a copied partition now"
    unknown = sum(it.lag == UNKNOWN for it in partitions)
    never = f", and was never reached for {format_count(unknown, 'partition')}" if unknown else ""
    ahead = format_count(_known_lag(partitions), "record")
    return f"open for writing; the source was {ahead} ahead when last reached{never}"


def _known_lag(partitions: Iterable[ObservedMirrorPartition]) -> int:
    return sum(max(it.lag, 0) for it in partitions)
