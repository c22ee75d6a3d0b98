"""`ottla groups`."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla_operator.cli.command_config import call_brokers
from ottla_operator.cli.offset_spec import OFFSET_FORMS, OffsetSpec, parse_offset_spec
from ottla_operator.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    CommandConfig,
    DryRun,
    Output,
    OutputFormat,
    Yes,
    new_app,
)
from ottla_operator.cli.output import print_document, print_fields, print_rows
from ottla_operator.formatting import format_partitions
from ottla_operator.kafka import cluster, groups, offsets, streams_groups, topics
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.offsets import TopicPartition

Name = Annotated[str, typer.Argument(metavar="GROUP", help="Id of the group.")]

app = new_app("Manage consumer groups.")


@app.command("list")
def list_(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, command_config: CommandConfig = None, output: Output = OutputFormat.table
) -> None:
    """List groups."""

    async def work(client: KafkaClient) -> list[dict[str, Any]]:
        brokers = await cluster.list_broker_ids(client)
        found = await groups.list_groups(client, brokers)
        return [{"group": it.id, "kind": it.kind, "state": it.state, "protocol": it.protocol} for it in found]

    columns = {"group": "GROUP", "kind": "KIND", "state": "STATE", "protocol": "PROTOCOL"}
    print_rows(call_brokers(bootstrap, command_config, work), columns, output)


@app.command()
def describe(
    name: Name,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.table,
) -> None:
    """Describe members, offsets and lag of a group."""

    async def work(client: KafkaClient) -> dict[str, Any]:
        group, committed = await groups.describe_group(client, name), await groups.list_group_offsets(client, name)
        if group.state == "Dead":
            group = await streams_groups.describe_streams_group(client, name) or group
        if group.state == "Dead" and not committed:
            raise KafkaError(
                ErrorCode.group_id_not_found,
                f"there is no classic, consumer or streams group {name!r}; for a share group: ottla share",
            )
        found = await topics.describe_topics(client, {topic for topic, _ in committed})
        ends = await offsets.list_offsets(client, found.values(), LATEST_TIMESTAMP)
        return _group_document(group, committed, ends)

    found = call_brokers(bootstrap, command_config, work)
    if output is not OutputFormat.table:
        print_document(found, output)
        return
    print_fields({field: found[field] for field in ("group", "kind", "state", "assignor", "members", "lag")})
    print()
    if found["kind"] in (groups.CONSUMER, streams_groups.STREAMS) and found["assignments"]:
        shown = [
            {**member, "partitions": len(member["partitions"]), "target": len(member["target"])}
            for member in found["assignments"]
        ]
        columns = {it: it.upper() for it in ("member", "client", "kind", "epoch", "partitions", "target")}
        print_rows(shown, columns, output)
        print()
    columns = {it: it.upper() for it in ("topic", "partition", "committed", "end", "lag", "client")}
    print_rows(found["partitions"], columns, output)


def _group_document(
    group: groups.GroupDescription, committed: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[str, Any]:
    members = {partition: member for member in group.members for partition in member.partitions}
    lags = {it: max(0, ends[it] - offset) for it, offset in committed.items() if it in ends}
    return {
        "group": group.id,
        "kind": group.kind,
        "epoch": group.epoch,
        "state": group.state,
        "assignor": group.assignor or None,
        "members": len(group.members),
        "lag": sum(lags.values()),
        "assignments": [
            {
                "member": member.id,
                "client": f"{member.client_id}@{member.host}",
                "kind": member.kind,
                "epoch": member.epoch,
                "partitions": format_partitions(member.partitions),
                "target": None if member.target is None else format_partitions(member.target),
            }
            for member in group.members
        ],
        "partitions": [
            {
                "topic": partition[0],
                "partition": partition[1],
                "committed": committed.get(partition),
                "end": ends.get(partition),
                "lag": lags.get(partition),
                "client": f"{members[partition].client_id}@{members[partition].host}" if partition in members else None,
                "member": members[partition].id if partition in members else None,
            }
            for partition in sorted({*committed, *members})
        ],
    }


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(metavar="GROUP", help="Ids of groups.")],
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Delete groups and their committed offsets.

    The groups must have no members.
    """
    if not yes:
        typer.confirm(f"Delete {', '.join(names)} with all committed offsets?", abort=True)

    async def work(client: KafkaClient) -> None:
        for name in names:
            await groups.delete_group(client, name)
            print(f"group {name} deleted")

    call_brokers(bootstrap, command_config, work)


@app.command("reset-offsets")
def reset_offsets(
    name: Name,
    to: Annotated[str, typer.Option("--to", metavar="OFFSET", help=f"New offset: {OFFSET_FORMS}.")],
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", help="Topic to reset. Repeatable. Default: all topics with committed offsets."),
    ] = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.table,
) -> None:
    """Reset the committed offsets of a group.

    The group must have no members.

    Example: ottla groups reset-offsets billing --to 2h --topic orders
    """
    spec = parse_offset_spec(to)

    async def work(client: KafkaClient) -> list[dict[str, Any]]:
        before = await groups.list_group_offsets(client, name)
        names = set(topic or {topic for topic, _ in before})
        if not names:
            message = f"group {name!r} has no committed offsets; name the topics with --topic"
            raise KafkaError(ErrorCode.group_id_not_found, message)
        after = await _resolve_offsets(client, spec, before, names)
        if not dry_run:
            await groups.alter_group_offsets(client, name, after)
        return [{"topic": it[0], "partition": it[1], "from": before.get(it), "to": after[it]} for it in sorted(after)]

    columns = {"topic": "TOPIC", "partition": "PARTITION", "from": "FROM", "to": "TO"}
    print_rows(call_brokers(bootstrap, command_config, work), columns, output)


async def _resolve_offsets(
    client: KafkaClient, spec: OffsetSpec, before: Mapping[TopicPartition, int], names: set[str]
) -> dict[TopicPartition, int]:
    found = await topics.require_topics(client, names)
    starts = await offsets.list_offsets(client, found.values(), EARLIEST_TIMESTAMP)
    ends = await offsets.list_offsets(client, found.values(), LATEST_TIMESTAMP)
    at_time = await offsets.list_offsets(client, found.values(), spec.time_ms) if spec.time_ms is not None else {}
    return {
        partition: spec.resolve(starts[partition], ends[partition], before.get(partition), at_time.get(partition))
        for partition in ends
        if partition in starts
    }
