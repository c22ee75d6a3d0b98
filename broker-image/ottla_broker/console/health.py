"""The health of the cluster in one sentence, and what to do about each problem."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ottla_broker.console.partition_census import PartitionCensus
from ottla_broker.log.file_names import TopicPartition
from ottla_broker.metadata.image import BrokerRegistration

Severity = Literal["error", "warning"]
NO_CONTROLLER: Final = -1
DESCRIBE_HEALTH: Final = "ottla cluster health"
DOCTOR: Final = "ottla doctor"


@dataclass(frozen=True, slots=True)
class Problem:
    """`command`: the command to run next. `partitions`: the first of those that have the
    problem.
    """

    severity: Severity
    sentence: str
    command: str
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Health:
    """`sentence`: the cluster's health in one sentence."""

    state: Literal["ok", "warning", "error"]
    sentence: str
    problems: tuple[Problem, ...]


def assess_health(
    brokers: Collection[BrokerRegistration],
    controller: int,
    census: PartitionCensus,
    own_problems: Sequence[str] = (),
) -> Health:
    """`own_problems`: reasons why this broker is not ready."""
    problems = [*_find_broker_problems(brokers, controller, own_problems), *_find_partition_problems(census)]
    errors = [one for one in problems if one.severity == "error"]
    if errors:
        return Health("error", f"The cluster does not serve everything: {errors[0].sentence}", tuple(problems))
    if problems:
        return Health("warning", f"Everything is served, but {_lower_first(problems[0].sentence)}", tuple(problems))
    count = f"{len(brokers)} brokers" if len(brokers) != 1 else "one broker"
    return Health("ok", f"All is well: {count}, every partition has a leader and all its replicas.", ())


def _find_broker_problems(
    brokers: Collection[BrokerRegistration], controller: int, own_problems: Sequence[str]
) -> list[Problem]:
    problems = [Problem("error", f"This broker is not ready: {reason}.", DOCTOR) for reason in own_problems]
    if controller == NO_CONTROLLER:
        problems.append(
            Problem("error", "No controller is active: nothing can be created or changed.", "ottla cluster metadata")
        )
    fenced = sorted(one.id for one in brokers if one.fenced)
    if fenced:
        names = ", ".join(map(str, fenced))
        is_one = len(fenced) == 1
        sentence = f"Broker {names} is fenced." if is_one else f"Brokers {names} are fenced."
        problems.append(Problem("warning", sentence, "ottla cluster describe"))
    return problems


def _find_partition_problems(census: PartitionCensus) -> list[Problem]:
    counts = census.counts
    problems = []
    if counts["offline"]:
        sentence = f"{_count_partitions(counts['offline'], 'has', 'have')} no leader: nothing is read or written there."
        problems.append(Problem("error", sentence, DESCRIBE_HEALTH, tuple(census.offline)))
    if counts["below_min_isr"]:
        subject = _count_partitions(counts["below_min_isr"], "has", "have")
        sentence = f"{subject} fewer in-sync replicas than min.insync.replicas: producers with acks=all are refused."
        problems.append(Problem("error", sentence, DESCRIBE_HEALTH, tuple(census.below_min_isr)))
    if counts["under_replicated"]:
        sentence = f"{_count_partitions(counts['under_replicated'], 'has', 'have')} replicas that are not in sync."
        problems.append(Problem("warning", sentence, DESCRIBE_HEALTH, tuple(census.under_replicated)))
    return problems


def _count_partitions(count: int, singular: str, plural: str) -> str:
    return f"One partition {singular}" if count == 1 else f"{count:,} partitions {plural}"


def _lower_first(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
