"""Every API in every version gives Apache Kafka's answers, in the good cases and in the bad ones.

`tests/clients/kafka-4.1-answers.json` holds what Apache Kafka 4.1 answered: by API and case, for each run of versions
(`"0-3"`) the answer. It is written by `pytest tests/clients/test_same_answers.py --against kafka --record-answers`;
without the switch `--against kafka` checks that what is recorded is still true. `KNOWN` is where we mean to differ.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla_broker.wire.channel import open_channel
from ottla_broker.wire.codec import request_class
from tests.brokers import BrokerProcess
from tests.clients.asking import KEYS, NAMES, VERSIONS, Json, Talk
from tests.clients.conftest import NewBroker
from tests.clients.group_questions import GROUP_QUESTIONS
from tests.clients.offset_questions import OFFSET_QUESTIONS
from tests.clients.record_questions import RECORD_QUESTIONS
from tests.clients.topic_questions import TOPIC_QUESTIONS

RECORDED = Path(__file__).with_name("kafka-4.1-answers.json")
QUESTIONS = {each.__name__: each for each in (*TOPIC_QUESTIONS, *RECORD_QUESTIONS, *GROUP_QUESTIONS, *OFFSET_QUESTIONS)}
NOTHING = "nothing"
RUN = "run"


class Known(NamedTuple):
    """Differences of the APIs, in the cases and places (`case: .path`), that both patterns match from the start."""

    api: str
    where: str
    because: str


UNSERVED = "groups' and clients' own settings come with KIP-848 and client metrics"
OPAQUE = "we do not look into batches, so we cannot tell"
NO_BUG = "Kafka fails on it with an exception of its own; we say what is wrong"
KNOWN: tuple[Known, ...] = (
    Known("metadata", "unknown, to be made: ", "the topic is there when we answer; Kafka makes clients ask again"),
    Known("metadata", "neither id nor name: ", NO_BUG),
    Known("create_topics", r"collides: .topics\[x_y\]", "Kafka overlooks names of the same request"),
    Known(".*_(topics|configs)", r".*\[min.insync.replicas( 1)?\]", "Kafka's format sets it for the cluster, with ELR"),
    Known("alter_configs", "all brokers', only validated: ", "Kafka refuses to drop what its format had set"),
    Known(
        "describe_configs", r".*\[log.retention.hours\]", "it is where the value comes from when the topic's is deleted"
    ),
    Known(
        "describe_configs",
        r".*\[node.id 1\]",
        "Kafka's has no default; ours is 1, so that one broker needs no settings",
    ),
    Known("describe_configs", "(a group|client metrics): ", UNSERVED),
    Known("incremental_alter_configs", "a group: ", UNSERVED),
    Known("incremental_alter_configs", "unknown operation: ", NO_BUG),
    Known("produce", "bytes behind: ", "Kafka drops them in silence"),
    Known("produce", "LogAppendTime from a client: ", "it would pass a client's clock off as the broker's"),
    Known("produce", "an unknown codec: ", NO_BUG),
    Known("produce", "(records behind|fewer records than) the count: ", OPAQUE),
    Known("produce", "recompressed, nonsense inside: ", OPAQUE),
    Known("produce", "a transaction that was not begun: ", "there are no transactions yet"),
    Known("produce", r".*\.record_errors", OPAQUE),
    Known("fetch", "isolation level 7: ", NO_BUG),
    Known("fetch", r".*\.aborted_transactions Kafka \[\], we None", "of a partition with an error; both mean none"),
    Known("fetch", r"6000 bytes: .*\.records", "Kafka cuts the last batch at the limit; we give whole ones"),
    Known("fetch", r"a replica that is none: .*\.current_leader", "only clients are told of another leader"),
)


@pytest.fixture(scope="module")
def asked(new_broker: NewBroker) -> Iterator[BrokerProcess]:
    with new_broker(num_partitions=1, group_initial_rebalance_delay_ms=0) as broker:
        yield broker


@pytest.fixture(scope="module")
def recording(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--record-answers"))


@pytest.mark.parametrize("api", QUESTIONS)
def test_same_answers(api: str, asked: BrokerProcess, broker_kind: str, recording: bool) -> None:
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    if recording:
        assert broker_kind == "kafka", "what is recorded is Apache Kafka's answers"
        recorded[api] = grouped(asyncio.run(answers(asked.bootstrap, RUN, api, None)))
        RECORDED.write_text(written(recorded))
        return
    wanted = recorded[api]
    versions = sorted({version for case in wanted.values() for runs in case for version in versions_in(runs)})
    got = grouped(asyncio.run(answers(asked.bootstrap, RUN, api, versions)))
    found = [
        f"{api} {line}"
        for line in differences(wanted, got)
        if not any(re.fullmatch(known.api, api) and re.match(known.where, line) for known in KNOWN)
    ]
    assert not found, "\n".join(found)


async def answers(bootstrap: str, run: str, api: str, versions: list[int] | None) -> dict[int, dict[str, Json]]:
    """By version, the answers by case. `run` is part of every name; `versions`: those both sides speak, unless they
    are known."""
    host, _, port = bootstrap.partition(":")
    if versions is None:
        channel = await open_channel(host, int(port), "asking")
        low, high = channel.versions[KEYS[api]]
        channel.close()
        first, last = VERSIONS[api]
        versions = [version for version in range(max(low, first), min(high, last) + 1) if exists(api, version)]
    found = {}
    for version in versions:
        talk = Talk(host, int(port), run, api, version)
        try:
            await QUESTIONS[api](talk)
        finally:
            talk.close()
        found[version] = talk.answers
    return found


def exists(api: str, version: int) -> bool:
    """kio has no class of what only the oldest clients speak."""
    try:
        request_class(KEYS[api], version)
    except RuntimeError:
        return False
    return True


# --- what is kept


def grouped(found: dict[int, dict[str, Json]]) -> dict[str, dict[str, Json]]:
    """By case and run of versions (`"0-3"`), the answer that all of them gave."""
    cases: dict[str, list[tuple[int, int, Json]]] = {}
    for version, by_case in sorted(found.items()):
        for case, answer in by_case.items():
            runs = cases.setdefault(case, [])
            if runs and runs[-1][1] == version - 1 and runs[-1][2] == answer:
                runs[-1] = (runs[-1][0], version, answer)
            else:
                runs.append((version, version, answer))
    return {case: {f"{low}-{high}": answer for low, high, answer in runs} for case, runs in cases.items()}


def versions_in(runs: str) -> range:
    low, _, high = runs.partition("-")
    return range(int(low), int(high) + 1)


def written(recorded: dict[str, dict[str, dict[str, Json]]]) -> str:
    """One line for each case and run of versions, in an order that does not change: a diff shows what changed."""
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


# --- what differs


def differences(wanted: dict[str, dict[str, Json]], got: dict[str, dict[str, Json]]) -> Iterator[str]:
    """A line for each place that differs, with the versions it differs in."""
    lines: dict[str, list[int]] = {}
    for case in wanted | got:
        theirs, ours = by_version(wanted.get(case, {})), by_version(got.get(case, {}))
        for version in sorted(theirs | ours):
            for path, before, after in unequal(theirs.get(version, NOTHING), ours.get(version, NOTHING)):
                said = f"{case}: {path} Kafka {before!r}, we {after!r}"
                lines.setdefault(said, []).append(version)
    for line, versions in lines.items():
        yield f"{line} (v{', '.join(map(str, versions))})"


def by_version(runs: dict[str, Json]) -> dict[int, Json]:
    return {version: answer for each, answer in runs.items() for version in versions_in(each)}


def unequal(wanted: Json, got: Json, path: str = "") -> Iterator[tuple[str, Json, Json]]:
    """Each place that differs: its path and both values. Entries of lists go by what names them."""
    if isinstance(wanted, list) and isinstance(got, list):
        wanted, got = named(wanted), named(got)
    if isinstance(wanted, dict) and isinstance(got, dict):
        for name in wanted | got:
            yield from unequal(
                wanted.get(name, NOTHING), got.get(name, NOTHING), path + (name if name.startswith("[") else f".{name}")
            )
    elif wanted != got or type(wanted) is not type(got):
        yield path, wanted, got


def named(entries: list[Json]) -> dict[str, Json]:
    """By what names an entry, so that one missing does not shift the rest; by its place without a name."""
    found: dict[str, Json] = {}
    for at, entry in enumerate(entries):
        name = next((entry[field] for field in NAMES if entry.get(field)), at) if isinstance(entry, dict) else at
        found[f"[{name}]" if f"[{name}]" not in found else f"[{name} {at}]"] = entry
    return found
