"""Dead letters of records that do not decode and rows that do not satisfy an expectation, on a real
broker.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla_spark.errors import PipelineError
from tests.spark.conftest import Runner, Topics, count_written, events, ids


def test_rejected_rows_are_written_as_dead_letters(pipeline: Runner, topics: Topics) -> None:
    topics.create("dl-in", "dl-out", "dl-dead")
    spec = {
        "sources": {"events": events("dl-in")},
        "transforms": [
            {
                "name": "known",
                "sql": "SELECT * FROM events",
                "expect": [
                    {"name": "is_near", "sql": "id < 9", "onFail": "drop"},
                    {"name": "has_city", "sql": "city <> ''"},
                ],
            }
        ],
        "sinks": [{"from": "known", "topic": "dl-out", "key": ["id"]}],
        "deadLetter": {"topic": "dl-dead"},
    }
    topics.write(
        "dl-in",
        {"id": 1, "city": "Prague"},
        b"{",
        {"id": "one"},
        {"city": "Zurau"},
        {"id": 2, "city": ""},
        {"id": 3},
        None,
    )
    topics.write("dl-in", {"id": 4, "city": "Berlin"}, key="k")
    topics.write("dl-in", {"id": 10, "city": "Vienna"})
    lines = pipeline(spec)
    assert ids(topics, "dl-out") == [1, 4]
    dead = {int(letter.headers["ottla.offset"] or -1): letter for letter in topics.read("dl-dead")}
    assert {offset: letter.headers["ottla.reason"] for offset, letter in dead.items()} == {
        1: "the value is not JSON that matches the schema",
        2: "the value is not JSON that matches the schema",
        3: "the column id is missing or null",
        4: "known expects has_city: city <> ''",
        5: "known expects has_city: city <> ''",
        6: "the record has no value",
    }
    assert dead[1].value == b"{"
    assert dead[4].json == {"id": 2, "at": None, "city": ""}
    assert dead[1].headers["ottla.pipeline"] == "p"
    assert (dead[1].headers["ottla.topic"], dead[1].headers["ottla.partition"]) == ("dl-in", "0")
    assert sum(line.get("deadLetters", 0) for line in lines) == 6
    (rejected,) = (line["rejected"] for line in lines if line.get("rows"))
    assert rejected == {"events": {"undecoded": 4}, "known": {"is_near": 1, "has_city": 2}}
    assert (lines[0]["state"], lines[-1]["state"]) == ("starting", "finished")

    topics.write("dl-in", b"}")
    pipeline(spec)
    assert len(topics.read("dl-dead")) == 7, "letters are not written again"
    assert len(topics.read("dl-out")) == 2

    # As if the process had been killed after the batch and before its letters: the next run writes
    # them.
    (pipeline.folder / "checkpoint" / ".letters.json.crc").unlink()
    (pipeline.folder / "checkpoint" / "letters.json").write_text('{"dl-in": {"0": 9}}')
    topics.write("dl-in", {"id": 5, "city": "Riva"})
    pipeline(spec)
    letters = [letter.headers["ottla.offset"] for letter in topics.read("dl-dead")]
    assert letters[7:] == ["9"]


@pytest.mark.parametrize("has_key", [False, True])
@pytest.mark.parametrize("dead_letter", [{}, {"deadLetter": {"topic": "once-dead"}}])
def test_values_and_keys_are_parsed_once(
    pipeline: Runner, topics: Topics, query_plans: list[str], dead_letter: dict[str, Any], has_key: bool
) -> None:
    case = f"{len(dead_letter)}-{has_key}"
    topics.create(source := f"once-in-{case}", sink := f"once-out-{case}")
    keys = {"key": "k", "keyFormat": {"type": "json", "schema": "n INT NOT NULL"}} if has_key else {}
    spec = {
        "sources": {"events": events(source, **keys)},
        "transforms": [{"name": "found", "sql": f"SELECT id{', k.n' if has_key else ''} FROM events WHERE id > 0"}],
        "sinks": [{"from": "found", "topic": sink}],
        **dead_letter,
    }
    key = '{"n": 7}' if has_key else None
    topics.write(source, {"id": 1}, *([{"id": 2, "at": "no time"}, b" \n\t"] if dead_letter else []), key=key)
    if dead_letter and has_key:
        topics.write(source, {"id": 3}, key="{}")
    pipeline(spec)
    assert ids(topics, sink) == [1]
    parsing = [line for line in query_plans[0].splitlines() if "from_json(" in line]
    assert len(parsing) == 1 + has_key, query_plans[0]
    assert all("Project" in line for line in parsing), "a projection evaluates an expression once"
    assert "Generate" not in query_plans[0], "a Generate node would be slower"
    if dead_letter:
        letters = topics.read("once-dead")
        reasons = [it.headers["ottla.reason"] for it in letters if it.headers["ottla.topic"] == source]
        of_key = ["the key's column n is missing or null"] if has_key else []
        of_values = ["the value is empty", "the value is not JSON that matches the schema"]
        assert sorted(map(str, reasons)) == [*of_key, *of_values]


def test_pipeline_fails_above_the_maximum_rate_of_dead_letters(pipeline: Runner, topics: Topics) -> None:
    topics.create("rate-in", "rate-out", "rate-dead")
    topics.write("rate-in", {"id": 1}, b"?", b"?")
    spec = {
        "sources": {"events": events("rate-in")},
        "sinks": [{"from": "events", "topic": "rate-out"}],
        "deadLetter": {"topic": "rate-dead", "maxRate": 0.5},
    }
    with pytest.raises(PipelineError, match=r"2 of 3 rows of a batch are dead letters, above maxRate 0\.5"):
        pipeline(spec)
    assert pipeline.lines[-1]["state"] == "failed"
    assert "maxRate" in pipeline.lines[-1]["error"]
    assert len(topics.read("rate-dead")) == 2


def test_record_that_does_not_decode_is_named_without_a_dead_letter_topic(pipeline: Runner, topics: Topics) -> None:
    topics.create("strict-in", "strict-out")
    topics.write("strict-in", {"id": 1}, {"id": None})
    spec = {"sources": {"events": events("strict-in")}, "sinks": [{"from": "events", "topic": "strict-out"}]}
    with pytest.raises(
        PipelineError,
        match=r"^topic strict-in, partition 0, offset 1: the column id is missing or null; with spec\.deadLetter",
    ):
        pipeline(spec)


def test_aggregates_that_do_not_satisfy_an_expectation_are_dead_letters(pipeline: Runner, topics: Topics) -> None:
    topics.create("sum-in", "sum-out", "sum-dead")
    topics.write("sum-in", *({"id": number, "city": city} for number, city in enumerate(["A", "A", "B"])))
    spec = {
        "sources": {"events": events("sum-in")},
        "transforms": [
            {
                "name": "sums",
                "sql": "SELECT city, count(*) AS n FROM events GROUP BY city",
                "expect": [{"name": "many", "sql": "n > 1"}],
            }
        ],
        "sinks": [{"from": "sums", "topic": "sum-out", "key": ["city"], "outputMode": "update"}],
        "deadLetter": {"topic": "sum-dead"},
    }
    lines = pipeline(spec)
    assert [message.json for message in topics.read("sum-out")] == [{"city": "A", "n": 2}]
    (letter,) = topics.read("sum-dead")
    assert letter.json == {"city": "B", "n": 1}
    assert letter.headers["ottla.offset"] is None
    assert (count_written(lines), sum(line.get("deadLetters", 0) for line in lines)) == (1, 1)
