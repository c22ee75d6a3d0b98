"""Steps that create, change, delete and describe topics and their configs."""

from typing import Any, Final

from tests.clients.walks.step_generator import DAY_MS, TOPICS, StepGenerator
from tests.clients.walks.steps import Reference, Step

TOPIC: Final = 2  # resource type
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
# Values that are invalid for every setting here, and that of a setting that does not exist.
BAD: Final = ("shred", "many", "-2", "1")
OPERATIONS: Final = (0, 0, 0, 1, 1, 2, 3)  # set, delete, append, subtract


def create_topics(generator: StepGenerator, topic: str | None = None) -> Step:
    names = [topic] if topic else [generator.choose(*TOPICS)]
    validate_only = topic is None and generator.chance()
    wanted: list[dict[str, Any]] = [
        {
            "name": Reference("name", (name,)),
            "num_partitions": generator.random.choices((1, 2, 3, -1, 0), (5, 5, 3, 1, 0.3))[0],
            "replication_factor": generator.random.choices((1, -1, 2), (10, 2, 0.3))[0],
            "configs": [
                {"name": key, "value": generator.choose(*SETTINGS[key])} for key in some_settings(generator, good=0.97)
            ],
        }
        for name in names
    ]
    for name, topic_wanted in zip(names, wanted, strict=True):
        good = topic_wanted["num_partitions"] and topic_wanted["replication_factor"] != 2
        if good and not any(config["value"] in BAD for config in topic_wanted["configs"]) and not validate_only:
            generator.created.setdefault(name, abs(topic_wanted["num_partitions"]))
    return generator.step("create_topics", topics=wanted, timeout=10_000, validate_only=validate_only)


def some_settings(generator: StepGenerator, good: float) -> list[str]:
    """Names of up to two settings. `good` is the probability that the setting that does not exist
    is left out.
    """
    keys = list(SETTINGS)[: None if generator.random.random() > good else -1]
    return generator.random.sample(keys, generator.random.choices((0, 1, 2), (5, 5, 2))[0])


def create_partitions(generator: StepGenerator) -> Step:
    wanted = [
        {"name": Reference("name", (name,)), "count": generator.choose(1, 2, 3, 3), "assignments": None}
        for name in generator.topics()
    ]
    return generator.step("create_partitions", topics=wanted, timeout=10_000, validate_only=generator.chance(0.1))


def delete_topics(generator: StepGenerator) -> Step:
    step = generator.step("delete_topics", timeout=10_000)
    names = generator.topics()
    for name in names:
        generator.created.pop(name, None)
        generator.deleted_from.discard(name)
    if step.version < 6:
        step.fields["topic_names"] = [Reference("name", (name,)) for name in names]
    elif generator.chance(0.5):
        step.fields["topics"] = [{"name": Reference("name", (name,)), "topic_id": None} for name in names]
    else:
        step.fields["topics"] = [
            {"name": None, "topic_id": Reference(generator.choose("id", "id", "old id"), (name,))} for name in names
        ]
    return step


def incremental_alter_configs(generator: StepGenerator) -> Step:
    def change() -> dict[str, Any]:
        key = generator.choose(*SETTINGS)
        operation = generator.choose(*OPERATIONS)
        return {
            "name": key,
            "config_operation": operation,
            "value": None if operation == 1 else generator.choose(*SETTINGS[key]),
        }

    configs = [change() for _ in range(generator.choose(1, 1, 2))]
    resources = [
        {"resource_type": TOPIC, "resource_name": Reference("name", (name,)), "configs": configs}
        for name in generator.topics()
    ]
    return generator.step("incremental_alter_configs", resources=resources, validate_only=generator.chance(0.1))


def alter_configs(generator: StepGenerator) -> Step:
    configs = [{"name": key, "value": generator.choose(*SETTINGS[key])} for key in some_settings(generator, good=0.9)]
    resources = [
        {"resource_type": TOPIC, "resource_name": Reference("name", (name,)), "configs": configs}
        for name in generator.topics()
    ]
    return generator.step("alter_configs", resources=resources, validate_only=generator.chance(0.1))


def describe_configs(generator: StepGenerator) -> Step:
    resources = [
        {"resource_type": TOPIC, "resource_name": Reference("name", (name,)), "configuration_keys": list(SETTINGS)}
        for name in generator.topics()
    ]
    return generator.step("describe_configs", resources=resources, include_synonyms=generator.chance(0.5))


def metadata(generator: StepGenerator) -> Step:
    names = generator.topics()
    by_id = generator.chance(0.3)
    return generator.step(
        "metadata",
        low=10 if by_id else 4,
        topics=[
            {"name": None, "topic_id": Reference(generator.choose("id", "id", "old id"), (name,))}
            if by_id
            else {"name": Reference("name", (name,)), "topic_id": None}
            for name in names
        ],
        allow_auto_topic_creation=False,
    )


def describe_topic_partitions(generator: StepGenerator) -> Step:
    names = generator.random.sample(TOPICS, generator.choose(1, 2, 3))
    cursor = {
        "topic_name": Reference("name", (generator.topic(),)),
        "partition_index": generator.choose(0, 0, 1, 2, 3, -1),
    }
    return generator.step(
        "describe_topic_partitions",
        topics=[{"name": Reference("name", (name,))} for name in names],
        response_partition_limit=generator.choose(1, 2, 3, 2000, 0),
        cursor=cursor if generator.chance(0.6) else None,
    )


def describe_log_dirs(generator: StepGenerator) -> Step:
    wanted = [
        {"topic": Reference("name", (name,)), "partitions": generator.partitions(name)} for name in generator.topics()
    ]
    return generator.step("describe_log_dirs", topics=wanted)
