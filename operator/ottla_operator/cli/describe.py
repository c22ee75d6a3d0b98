"""`ottla topics describe` and `ottla cluster describe`: everything about one topic, and about the cluster."""

from typing import Annotated, Any

import typer

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.cli.command_config import link_to
from ottla_operator.cli.exit_codes import run_command
from ottla_operator.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, CommandConfig, Format, Output
from ottla_operator.cli.output import emit, facts, show
from ottla_operator.formatting import format_size
from ottla_operator.kafka import cluster, log_dirs, offsets, quorum, reassignments, replicas, topics
from ottla_operator.kafka.client import KafkaClient

Name = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]


async def one_topic(link: KafkaClient, name: str) -> topics.TopicDescription:
    if not (found := await topics.describe_topics(link, [name])):
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")
    return found[name]


def describe_topic(
    name: Name,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = Format.table,
    all_settings: Annotated[bool, typer.Option("--all", help="Also settings that the topic inherits.")] = False,
) -> None:
    async def work() -> dict[str, Any]:
        async with link_to(bootstrap, command_config) as link:
            return await _topic(link, name, all_settings)

    found = run_command(work())
    if output is not Format.table:
        emit(found, output)
        return
    facts(
        {
            "topic": found["name"],
            "id": found["id"],
            "partitions": len(found["partitions"]),
            "replicas": found["replicas"],
            "under-replicated": sum(it["underReplicated"] for it in found["partitions"]),
        }
    )
    print()
    seldom = {"elr": "ELIGIBLE", "lastKnownElr": "LAST KNOWN", "adding": "ADDING", "removing": "REMOVING", "what": ""}
    shown = {"partition": "PARTITION", "leader": "LEADER", "replicas": "REPLICAS", "isr": "ISR"}
    shown |= {key: heading for key, heading in seldom.items() if any(it[key] for it in found["partitions"])}
    show(found["partitions"], {**shown, "start": "START", "end": "END", "bytes": "BYTES"}, output)
    if found["settings"]:
        print()
        show(found["settings"], {"name": "SETTING", "value": "VALUE", "source": "FROM"}, output)


async def _topic(link: KafkaClient, name: str, all_settings: bool) -> dict[str, Any]:
    topic = await one_topic(link, name)
    ends = await offsets.list_reachable_offsets(link, [topic], offsets.LATEST)
    starts = await offsets.list_reachable_offsets(link, [topic], offsets.EARLIEST)
    settings = (await topics.describe_topic_configs(link, [name]))[name]
    elr = await replicas.describe_eligible_leaders(link, name)
    moving = await reassignments.list_reassignments(link)
    brokers = [it.id for it in (await cluster.describe_cluster(link)).brokers]
    sizes = await log_dirs.describe_replica_sizes(link, brokers, [(name, it.index) for it in topic.partitions])
    nobody = replicas.EligibleLeaders((), ())
    ailing = {it.partition: it.kind for it in cluster.find_partition_problems([topic], moving)}
    return {
        "name": topic.name,
        "id": str(topic.id) if topic.id else None,
        "internal": topic.is_internal,
        "replicas": topic.replication_factor,
        "partitions": [
            {
                "partition": it.index,
                "leader": it.leader,
                "leaderEpoch": it.leader_epoch,
                "replicas": list(it.replicas),
                "isr": list(it.isr),
                "elr": list(elr.get(it.index, nobody).eligible),
                "lastKnownElr": list(elr.get(it.index, nobody).last_known),
                "offline": list(it.offline_replicas),
                "adding": list(move.adding) if (move := moving.get((name, it.index))) else [],
                "removing": list(move.removing) if move else [],
                "underReplicated": ailing.get(it.index) == cluster.UNDER_REPLICATED,
                "start": starts.get((name, it.index)),
                "end": ends.get((name, it.index)),
                "bytes": sum(found.get((name, it.index), 0) for found in sizes.values()),
                "what": ailing.get(it.index, ""),
            }
            for it in topic.partitions
        ],
        "settings": [
            {"name": it.name, "value": it.value, "source": it.source}
            for it in settings
            if all_settings or it.source == "topic"
        ],
    }


def describe_cluster(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, command_config: CommandConfig = None, output: Output = Format.table
) -> None:
    async def work() -> dict[str, Any]:
        async with link_to(bootstrap, command_config) as link:
            return await _cluster(link)

    found = run_command(work())
    if output is not Format.table:
        emit(found, output)
        return
    headings = {
        "id": "id",
        "controller": "controller",
        "controllerEpoch": "controller epoch",
        "topics": "topics",
        "partitions": "partitions",
        "underReplicated": "under-replicated",
        "offline": "offline",
        "moving": "moving",
    }
    facts({heading: found[key] for key, heading in headings.items()})
    print()
    columns = {"id": "BROKER", "host": "HOST", "port": "PORT", "rack": "RACK", "state": "STATE", "leads": "LEADS"}
    rows = [{**it, "size": format_size(it["bytes"]) or "unknown"} for it in found["brokers"]]
    show(rows, {**columns, "replicas": "REPLICAS", "size": "DISK"}, output)


async def _cluster(link: KafkaClient) -> dict[str, Any]:
    found = await cluster.describe_cluster_with_fenced_brokers(link)
    lead = await quorum.describe_quorum(link)
    every = await topics.list_topics(link)
    sizes = await log_dirs.describe_replica_sizes(link, [it.id for it in found.brokers if not it.is_fenced])
    moving = await reassignments.list_reassignments(link)
    ailing = cluster.find_partition_problems(every, moving)
    partitions = [it for topic in every for it in topic.partitions]
    return {
        "id": found.id,
        "controller": lead.leader if lead else found.controller,
        "controllerEpoch": lead.epoch if lead else None,
        "topics": len(every),
        "partitions": len(partitions),
        "underReplicated": sum(it.kind == cluster.UNDER_REPLICATED for it in ailing),
        "offline": sum(it.kind == cluster.OFFLINE for it in ailing),
        "moving": len(moving),
        "brokers": [
            {
                "id": it.id,
                "host": it.host,
                "port": it.port,
                "rack": it.rack,
                "state": "fenced" if it.is_fenced else "up",
                "fenced": it.is_fenced,
                "leads": sum(p.leader == it.id for p in partitions),
                "replicas": sum(it.id in p.replicas for p in partitions),
                "bytes": sum(sizes[it.id].values()) if it.id in sizes else None,
            }
            for it in found.brokers
        ],
    }
