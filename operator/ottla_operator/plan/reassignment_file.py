"""Reassignment plans as JSON, in the form of Kafka's kafka-reassign-partitions:

{"version": 1, "partitions": [
    {"topic": "events", "partition": 0, "replicas": [1, 2, 3], "log_dirs": ["any", "any", "any"]}
]}
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ottla_operator.plan.moves import Move

Partition = tuple[str, int]


class InvalidPlan(ValueError):
    """The text is not a plan. Each line of the message names a field, its value and what is
    allowed.
    """


def parse_plan(text: str, name: str) -> dict[Partition, tuple[int, ...]]:
    """The new replicas of each (topic, partition). `name`: the file's name, for errors. Raises
    InvalidPlan.
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidPlan(f"{name}: not JSON: {error}") from error
    problems: list[str] = []
    plan: dict[Partition, tuple[int, ...]] = {}
    if not isinstance(found, dict) or not isinstance(found.get("partitions"), list):
        raise InvalidPlan(
            f'{name}: a plan is {{"version": 1, "partitions": [{{"topic": …, "partition": …, "replicas": […]}}]}}'
        )
    if found.get("version") != 1 or isinstance(found.get("version"), bool):
        problems.append(f"version: {_format_json(found.get('version'))} is not a version of a plan; expected 1")
    for key in found.keys() - {"version", "partitions"}:
        problems.append(f"{key}: unknown field; a plan has version and partitions")
    if not found["partitions"]:
        problems.append("partitions: [] names no partition")
    for index, entry in enumerate(found["partitions"]):
        path = f"partitions[{index}]"
        in_entry = list(_find_entry_problems(entry, path))
        problems += in_entry
        if in_entry:
            continue
        partition = entry["topic"], entry["partition"]
        if partition in plan:
            problems.append(f"{path}: {partition[0]}-{partition[1]} is listed twice")
        plan[partition] = tuple(entry["replicas"])
    if problems:
        raise InvalidPlan("\n".join(f"{name}: {it}" for it in problems))
    return plan


def plan_document(replicas: Mapping[Partition, Iterable[int]]) -> dict[str, Any]:
    """The JSON object of a plan."""
    partitions = [
        {"topic": topic, "partition": partition, "replicas": list(brokers)}
        for (topic, partition), brokers in sorted(replicas.items())
    ]
    return {"version": 1, "partitions": partitions}


def forward_plan(moves: Iterable[Move]) -> dict[str, Any]:
    """The plan that does these moves."""
    return plan_document({(it.topic, it.partition): it.after for it in moves})


def rollback_plan(moves: Iterable[Move]) -> dict[str, Any]:
    """The plan that undoes these moves."""
    return plan_document({(it.topic, it.partition): it.before for it in moves})


def _find_entry_problems(entry: Any, path: str) -> Iterable[str]:
    if not isinstance(entry, dict):
        yield f"{path}: {_format_json(entry)} is not an object with topic, partition and replicas"
        return
    for key in entry.keys() - {"topic", "partition", "replicas", "log_dirs"}:
        yield f"{path}.{key}: unknown field; an entry has topic, partition, replicas and log_dirs"
    if not isinstance(entry.get("topic"), str) or not entry["topic"]:
        yield f"{path}.topic: {_format_json(entry.get('topic'))} is not a topic name"
    if not _is_number(entry.get("partition")):
        yield f"{path}.partition: {_format_json(entry.get('partition'))} is not a partition number (0 or greater)"
    replicas = entry.get("replicas")
    if not isinstance(replicas, list) or not replicas or not all(map(_is_number, replicas)):
        yield f"{path}.replicas: {_format_json(replicas)} is not a list of one or more broker ids"
    elif len(set(replicas)) < len(replicas):
        yield f"{path}.replicas: {_format_json(replicas)} names a broker twice"
    elif "log_dirs" in entry and entry["log_dirs"] != ["any"] * len(replicas):
        yield (
            f'{path}.log_dirs: {_format_json(entry["log_dirs"])}: brokers choose the log directory; write "any" '
            "for each replica, or leave log_dirs out"
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _format_json(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "…"
