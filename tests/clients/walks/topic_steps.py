"""Steps that make, change, remove and describe topics and their settings."""

from typing import Any, Final

from tests.clients.walks.drawing import DAY_MS, TOPICS, Draw
from tests.clients.walks.steps import Ref, Step

TOPIC: Final = 2
SETTINGS: Final = {
    "cleanup.policy": ("compact", "delete", "compact,delete", "shred"),
    "message.timestamp.type": ("LogAppendTime", "CreateTime"),
    "max.message.bytes": ("100", "200", "1048588", "-1", "many"),
    "retention.ms": ("-1", "3600000", "1000", "-2"),
    "compression.type": ("gzip", "producer", "uncompressed"),
    "message.timestamp.before.max.ms": (str(DAY_MS), "9223372036854775807"),
    "delete.retention.ms": ("0", "1000"),
    "no.such.thing": ("1",),
}
BAD: Final = ("shred", "many", "-2", "1")  # no topic is made with these
OPERATIONS: Final = (0, 0, 0, 1, 1, 2, 3)  # set, delete, append, subtract


def create_topics(draw: Draw, topic: str | None = None) -> Step:
    names = [topic] if topic else [draw.one(*TOPICS)]
    validate_only = topic is None and draw.rarely()
    wanted: list[dict[str, Any]] = [
        {
            "name": Ref("name", (name,)),
            "num_partitions": draw.chance.choices((1, 2, 3, -1, 0), (5, 5, 3, 1, 0.3))[0],
            "replication_factor": draw.chance.choices((1, -1, 2), (10, 2, 0.3))[0],
            "configs": [{"name": key, "value": draw.one(*SETTINGS[key])} for key in some_settings(draw, good=0.97)],
        }
        for name in names
    ]
    for name, topic_wanted in zip(names, wanted, strict=True):
        good = topic_wanted["num_partitions"] and topic_wanted["replication_factor"] != 2
        if good and not any(config["value"] in BAD for config in topic_wanted["configs"]) and not validate_only:
            draw.made.setdefault(name, abs(topic_wanted["num_partitions"]))
    return draw.step("create_topics", topics=wanted, timeout=10_000, validate_only=validate_only)


def some_settings(draw: Draw, good: float) -> list[str]:
    keys = list(SETTINGS)[: None if draw.chance.random() > good else -1]
    return draw.chance.sample(keys, draw.chance.choices((0, 1, 2), (5, 5, 2))[0])


def create_partitions(draw: Draw) -> Step:
    wanted = [
        {"name": Ref("name", (name,)), "count": draw.one(1, 2, 3, 3), "assignments": None} for name in draw.topics()
    ]
    return draw.step("create_partitions", topics=wanted, timeout=10_000, validate_only=draw.rarely(0.1))


def delete_topics(draw: Draw) -> Step:
    step = draw.step("delete_topics", timeout=10_000)
    names = draw.topics()
    for name in names:
        draw.made.pop(name, None)
        draw.cut.discard(name)
    if step.version < 6:
        step.fields["topic_names"] = [Ref("name", (name,)) for name in names]
    elif draw.rarely(0.5):
        step.fields["topics"] = [{"name": Ref("name", (name,)), "topic_id": None} for name in names]
    else:
        step.fields["topics"] = [
            {"name": None, "topic_id": Ref(draw.one("id", "id", "old id"), (name,))} for name in names
        ]
    return step


def incremental_alter_configs(draw: Draw) -> Step:
    def change() -> dict[str, Any]:
        key = draw.one(*SETTINGS)
        operation = draw.one(*OPERATIONS)
        return {
            "name": key,
            "config_operation": operation,
            "value": None if operation == 1 else draw.one(*SETTINGS[key]),
        }

    configs = [change() for _ in range(draw.one(1, 1, 2))]
    resources = [
        {"resource_type": TOPIC, "resource_name": Ref("name", (name,)), "configs": configs} for name in draw.topics()
    ]
    return draw.step("incremental_alter_configs", resources=resources, validate_only=draw.rarely(0.1))


def alter_configs(draw: Draw) -> Step:
    configs = [{"name": key, "value": draw.one(*SETTINGS[key])} for key in some_settings(draw, good=0.9)]
    resources = [
        {"resource_type": TOPIC, "resource_name": Ref("name", (name,)), "configs": configs} for name in draw.topics()
    ]
    return draw.step("alter_configs", resources=resources, validate_only=draw.rarely(0.1))


def describe_configs(draw: Draw) -> Step:
    resources = [
        {"resource_type": TOPIC, "resource_name": Ref("name", (name,)), "configuration_keys": list(SETTINGS)}
        for name in draw.topics()
    ]
    return draw.step("describe_configs", resources=resources, include_synonyms=draw.rarely(0.5))


def metadata(draw: Draw) -> Step:
    names = draw.topics()
    by_id = draw.rarely(0.3)
    return draw.step(
        "metadata",
        low=10 if by_id else 4,
        topics=[
            {"name": None, "topic_id": Ref(draw.one("id", "id", "old id"), (name,))}
            if by_id
            else {"name": Ref("name", (name,)), "topic_id": None}
            for name in names
        ],
        allow_auto_topic_creation=False,
    )


def describe_topic_partitions(draw: Draw) -> Step:
    names = draw.chance.sample(TOPICS, draw.one(1, 2, 3))
    cursor = {"topic_name": Ref("name", (draw.topic(),)), "partition_index": draw.one(0, 0, 1, 2, 3, -1)}
    return draw.step(
        "describe_topic_partitions",
        topics=[{"name": Ref("name", (name,))} for name in names],
        response_partition_limit=draw.one(1, 2, 3, 2000, 0),
        cursor=cursor if draw.rarely(0.6) else None,
    )


def describe_log_dirs(draw: Draw) -> Step:
    wanted = [{"topic": Ref("name", (name,)), "partitions": draw.partitions(name)} for name in draw.topics()]
    return draw.step("describe_log_dirs", topics=wanted)
