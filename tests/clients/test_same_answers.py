"""Every API in every version gets Apache Kafka's responses, in valid and invalid cases.

`tests/clients/kafka-4.1-responses.json` holds the responses of Apache Kafka 4.1, and
`kafka-4.3-responses.json` those of 4.3 to the APIs of share groups and streams groups, and to
InitProducerId for two-phase commit. Both are by API and case, for each range of versions
(`"0-3"`). What follows the name of an API says which settings its broker has. `pytest
tests/clients/test_same_answers.py --against kafka --record-responses` writes the files; without
the option, `--against kafka` checks that they are still true. `KNOWN_DIFFERENCES` has the intended
differences.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla_broker.wire.channel import open_channel
from tests.brokers import BrokerProcess
from tests.clients.api_session import KEYS, VERSIONS, ApiSession, Json, has_message_class
from tests.clients.config_cases import CONFIG_CASES
from tests.clients.conftest import NewBroker
from tests.clients.consumer_group_cases import CONSUMER_GROUP_CASES
from tests.clients.group_cases import GROUP_CASES
from tests.clients.offset_cases import OFFSET_CASES
from tests.clients.producer_cases import PRODUCER_CASES
from tests.clients.quota_cases import QUOTA_CASES
from tests.clients.record_cases import RECORD_CASES
from tests.clients.response_differences import MISSING, find_differences
from tests.clients.share_group_cases import SHARE_GROUP_CASES
from tests.clients.share_record_cases import SHARE_RECORD_CASES
from tests.clients.share_state_cases import SHARE_STATE_CASES
from tests.clients.streams_group_cases import STREAMS_GROUP_CASES
from tests.clients.telemetry_cases import TELEMETRY_CASES, add_telemetry_plugin
from tests.clients.topic_cases import TOPIC_CASES
from tests.clients.transaction_cases import TRANSACTION_CASES, init_producer_id_in_two_phases
from tests.jars import KAFKA_4_3

OLDER_CASES = (
    *TOPIC_CASES,
    *CONFIG_CASES,
    *PRODUCER_CASES,
    *RECORD_CASES,
    *GROUP_CASES,
    *CONSUMER_GROUP_CASES,
    *OFFSET_CASES,
    *QUOTA_CASES,
    *TRANSACTION_CASES,
    *TELEMETRY_CASES,
)
NEWER_CASES = (*STREAMS_GROUP_CASES, *SHARE_GROUP_CASES, *SHARE_RECORD_CASES, *SHARE_STATE_CASES)
TWO_PHASES, NO_TWO_PHASES = "init_producer_id with two phases", "init_producer_id without two phases"
TWO_PHASE_CASES = dict.fromkeys((TWO_PHASES, NO_TWO_PHASES), init_producer_id_in_two_phases)
BROKER_FIXTURES = {
    TWO_PHASES: "two_phase_broker",
    NO_TWO_PHASES: "unstable_broker",
    **{each.__name__: "telemetry_broker" for each in TELEMETRY_CASES},
}
CASES = {each.__name__: each for each in (*OLDER_CASES, *NEWER_CASES)} | TWO_PHASE_CASES
APIS_OF_4_3 = {*(each.__name__ for each in NEWER_CASES), *TWO_PHASE_CASES}
SETTINGS = {"num_partitions": 1, "group_initial_rebalance_delay_ms": 0}


class KnownDifference(NamedTuple):
    """Differences of APIs. `api` matches the whole name of an API, `where` the beginning of
    `case: .path Kafka …, we …`.
    """

    api: str
    where: str
    because: str


OPAQUE = "Ottla does not parse records"
NO_BUG = "Kafka fails with an internal exception; Ottla returns the error"
NO_CHECK = "an epoch of -1 skips Kafka's comparison of epochs"
KNOWN_DIFFERENCES: tuple[KnownDifference, ...] = (
    KnownDifference(
        "metadata", "unknown, to be made: ", "the topic exists when Ottla responds; Kafka makes clients retry"
    ),
    KnownDifference("metadata", "neither id nor name: ", NO_BUG),
    KnownDifference("create_topics", r"collides: .topics\[x_y\]", "Kafka does not compare names within a request"),
    KnownDifference(
        ".*_(topics|configs)", r".*\[min.insync.replicas( 1)?\]", "Kafka's format sets it for the cluster, with ELR"
    ),
    KnownDifference("alter_configs", "all brokers', only validated: ", "Kafka refuses to drop what its format had set"),
    KnownDifference(
        "describe_configs",
        r".*\[log.retention.hours\]",
        "it is the source of the value that holds once the topic's own is deleted",
    ),
    KnownDifference(
        "describe_configs",
        r".*\[node.id 1\]",
        "Kafka has no default; Ottla's is 1, so that one broker needs no settings",
    ),
    KnownDifference(
        "describe_configs",
        r"a group: .*\.configs\[((consumer|share|streams)\.assignment\.interval\.ms|errors\.deadletterqueue\..*"
        r"|share\.(delivery|partition|renew)\..*|streams\.initial\..*)\] Kafka 'nothing'",
        "settings that groups have since Kafka 4.2",
    ),
    KnownDifference("incremental_alter_configs", "unknown operation: ", NO_BUG),
    KnownDifference("produce", "bytes after the batch: ", "Kafka drops them silently"),
    KnownDifference("produce", "LogAppendTime from a client: ", "the client's time would pass for the broker's"),
    KnownDifference("produce", "an unknown codec: ", NO_BUG),
    KnownDifference("produce", "(more|fewer) records than the count: ", OPAQUE),
    KnownDifference("produce", "recompressed, nonsense inside: ", OPAQUE),
    KnownDifference("fetch", "isolation level 7: ", NO_BUG),
    KnownDifference(
        "fetch", r"6000 bytes: .*\.records", "Kafka truncates the last batch at the limit; Ottla returns complete ones"
    ),
    KnownDifference(
        "fetch", r"a replica id that no broker has: .*\.current_leader", "only clients get the current leader"
    ),
    KnownDifference("streams_group_heartbeat", "a copartition group beyond its topics: ", NO_BUG),
    KnownDifference("describe_share_group_offsets", "no partition: ", NO_BUG),
    KnownDifference(
        "describe_share_group_offsets", r".*\.lag Kafka -5, we 0", "a start offset beyond the end is no negative lag"
    ),
    KnownDifference("share_fetch", "(without a group|an unknown topic is added|and stays in the session): ", NO_BUG),
    KnownDifference("share_fetch", "sized: an unknown acquire mode: ", NO_BUG),
    KnownDifference(
        "read_share_group_state_summary",
        r".*\.leader_epoch Kafka 0, we (2|-1)",
        "Ottla returns the last leader's, and Kafka 0",
    ),
    KnownDifference(
        "(initialize|delete)_share_group_state|read_share_group_state_summary",
        "(an unknown partition|an unknown topic|without a topic|a partition below all valid ones): ",
        "the group coordinator sends these requests only for partitions that exist",
    ),
    KnownDifference("initialize_share_group_state", "a state epoch below all valid ones: ", NO_CHECK),
    KnownDifference(
        ".*_share_group_state(_summary)?",
        r"without a group: \.results\[0\]",
        "Ottla returns an error for every partition",
    ),
    KnownDifference("read_share_group_state", "a leader epoch below all valid ones: ", NO_CHECK),
    KnownDifference(
        "(read|write)_share_group_state",
        r".*error_code Kafka 'invalid_request', we 'unknown_topic_or_partition'",
        "so that leaders know that the group's offsets were deleted",
    ),
    KnownDifference(
        "write_share_group_state",
        r"a former leader: .*'fenced_leader_epoch'|a later state epoch: .*'fenced_state_epoch'",
        "Kafka lets these writes pass",
    ),
    KnownDifference(
        "write_share_group_state",
        r".*, then: .*\.start_offset Kafka [0-9]+, we 3",
        "the start offset never goes back: a leader has several writes in flight",
    ),
    KnownDifference(
        "write_share_group_state",
        r"(an unknown state|acquired|the end before the start|a count below all valid ones)(, then)?: ",
        "Kafka stores states that no leader has",
    ),
)


@pytest.fixture(scope="module")
def broker_under_test(new_broker: NewBroker) -> Iterator[BrokerProcess]:
    with new_broker(**SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="module")
def newer_broker(new_broker: NewBroker, broker_kind: str) -> Iterator[BrokerProcess]:
    """A broker; with Apache Kafka, of a version that serves streams groups."""
    version = {"version": KAFKA_4_3} if broker_kind == "kafka" else {}
    with new_broker(**SETTINGS, **version, group_streams_initial_rebalance_delay_ms=0) as broker:
        yield broker


@pytest.fixture(scope="module")
def unstable_settings(broker_kind: str) -> dict[str, object]:
    """Settings with which Apache Kafka serves the version of InitProducerId that has two-phase
    commit and is not stable. Ottla needs none.
    """
    is_kafka = broker_kind == "kafka"
    return {"version": KAFKA_4_3, "unstable_api_versions_enable": True} if is_kafka else {}


@pytest.fixture(scope="module")
def unstable_broker(new_broker: NewBroker, unstable_settings: dict[str, object]) -> Iterator[BrokerProcess]:
    with new_broker(**SETTINGS, **unstable_settings) as broker:
        yield broker


@pytest.fixture(scope="module")
def two_phase_broker(new_broker: NewBroker, unstable_settings: dict[str, object]) -> Iterator[BrokerProcess]:
    with new_broker(**SETTINGS, **unstable_settings, transaction_two_phase_commit_enable=True) as broker:
        yield broker


@pytest.fixture(scope="module")
def telemetry_broker(new_broker: NewBroker, broker_kind: str) -> Iterator[BrokerProcess]:
    with new_broker(**SETTINGS, start=False) as broker:
        if broker_kind == "kafka":
            add_telemetry_plugin(broker)
        broker.start()
        yield broker


@pytest.fixture(scope="module")
def recording(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--record-responses"))


@pytest.mark.parametrize("api", CASES)
def test_responses_equal_kafkas(api: str, request: pytest.FixtureRequest, broker_kind: str, recording: bool) -> None:
    is_new = api in APIS_OF_4_3
    broker: BrokerProcess = request.getfixturevalue(
        BROKER_FIXTURES.get(api, "newer_broker" if is_new else "broker_under_test")
    )
    stored = Path(__file__).with_name(f"kafka-{'4.3' if is_new else '4.1'}-responses.json")
    recorded = json.loads(stored.read_text()) if stored.exists() else {}
    if recording:
        assert broker_kind == "kafka", "only Apache Kafka's responses are recorded"
        recorded[api] = group_by_version_range(asyncio.run(collect_responses(broker.bootstrap, api, None)))
        stored.write_text(to_json_text(recorded))
        return
    wanted = recorded[api]
    versions = sorted({version for case in wanted.values() for runs in case for version in versions_in(runs)})
    got = group_by_version_range(asyncio.run(collect_responses(broker.bootstrap, api, versions)))
    found = [
        f"{api} {line}"
        for line in differences(wanted, got)
        if not any(re.fullmatch(known.api, api) and re.match(known.where, line) for known in KNOWN_DIFFERENCES)
    ]
    assert not found, "\n".join(found)


async def collect_responses(bootstrap: str, api: str, versions: list[int] | None) -> dict[int, dict[str, Json]]:
    """The responses by version and case. `versions` None: those that the broker and the tests
    support.
    """
    host, _, port = bootstrap.partition(":")
    name = api.partition(" ")[0]
    if versions is None:
        channel = await open_channel(host, int(port), "asking")
        low, high = channel.versions[KEYS[name]]
        channel.close()
        first, last = VERSIONS[name]
        versions = [
            version for version in range(max(low, first), min(high, last) + 1) if has_message_class(name, version)
        ]
    found = {}
    for version in versions:
        session = ApiSession(host, int(port), "run", name, version)
        try:
            await CASES[api](session)
        finally:
            session.close()
        found[version] = session.responses
    return found


# --- stored form


def group_by_version_range(found: dict[int, dict[str, Json]]) -> dict[str, dict[str, Json]]:
    """The responses by case and range of versions with the same response."""
    cases: dict[str, list[tuple[int, int, Json]]] = {}
    for version, by_case in sorted(found.items()):
        for case, answer in by_case.items():
            runs = cases.setdefault(case, [])
            if runs and runs[-1][1] == version - 1 and runs[-1][2] == answer:
                runs[-1] = (runs[-1][0], version, answer)
            else:
                runs.append((version, version, answer))
    return {case: {f"{low}-{high}": answer for low, high, answer in runs} for case, runs in cases.items()}


def versions_in(version_range: str) -> range:
    low, _, high = version_range.partition("-")
    return range(int(low), int(high) + 1)


def to_json_text(recorded: dict[str, dict[str, dict[str, Json]]]) -> str:
    """JSON text in a stable order with one line per case and range, so that a diff shows what
    changed.
    """
    apis = []
    for api, cases in sorted(recorded.items()):
        lines = [
            f"  {json.dumps(case, ensure_ascii=False)}: {{\n   "
            + ",\n   ".join(
                f"{json.dumps(runs)}: {json.dumps(each, ensure_ascii=False)}" for runs, each in answer.items()
            )
            + "}"
            for case, answer in cases.items()
        ]
        apis.append(f" {json.dumps(api)}: {{\n" + ",\n".join(lines) + "}")
    return "{\n" + ",\n".join(apis) + "\n}\n"


# --- differences


def differences(wanted: dict[str, dict[str, Json]], got: dict[str, dict[str, Json]]) -> Iterator[str]:
    """One line for each difference, with the versions that have it."""
    lines: dict[str, list[int]] = {}
    for case in wanted | got:
        theirs, ours = by_version(wanted.get(case, {})), by_version(got.get(case, {}))
        for version in sorted(theirs | ours):
            for path, before, after in find_differences(theirs.get(version, MISSING), ours.get(version, MISSING)):
                message = f"{case}: {path} Kafka {before!r}, we {after!r}"
                lines.setdefault(message, []).append(version)
    for line, versions in lines.items():
        yield f"{line} (v{', '.join(map(str, versions))})"


def by_version(runs: dict[str, Json]) -> dict[int, Json]:
    return {version: answer for each, answer in runs.items() for version in versions_in(each)}
