"""`ottla share`."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ottla_operator.cli.command_config import call_brokers
from ottla_operator.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, CommandConfig, Output, OutputFormat, Yes, new_app
from ottla_operator.cli.output import print_document, print_fields, print_rows
from ottla_operator.formatting import format_partitions
from ottla_operator.kafka import cluster, groups, share_groups
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.offsets import TopicPartition

Name = Annotated[str, typer.Argument(metavar="GROUP", help="Id of the share group.")]

app = new_app("Manage share groups.")


@app.command("list")
def list_(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, command_config: CommandConfig = None, output: Output = OutputFormat.table
) -> None:
    """List share groups."""

    async def work(client: KafkaClient) -> list[dict[str, Any]]:
        brokers = await cluster.list_broker_ids(client)
        found = await share_groups.list_share_groups(client, brokers)
        return [{"group": it.id, "state": it.state} for it in found]

    print_rows(call_brokers(bootstrap, command_config, work), {"group": "GROUP", "state": "STATE"}, output)


@app.command()
def describe(
    name: Name,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.table,
) -> None:
    """Describe members, start offsets and lag of a share group."""

    async def work(client: KafkaClient) -> dict[str, Any]:
        group = await share_groups.describe_share_group(client, name)
        return _group_document(group, await share_groups.list_share_offsets(client, name))

    found = call_brokers(bootstrap, command_config, work)
    if output is not OutputFormat.table:
        print_document(found, output)
        return
    counts = {**found, "members": len(found["members"])}
    print_fields({field: counts[field] for field in ("group", "state", "epoch", "members", "lag")})
    if found["members"]:
        print()
        shown = [{**member, "partitions": len(member["partitions"])} for member in found["members"]]
        print_rows(shown, {it: it.upper() for it in ("member", "client", "epoch", "partitions")}, output)
    print()
    columns = {"topic": "TOPIC", "partition": "PARTITION", "start": "START", "lag": "LAG", "members": "MEMBERS"}
    print_rows(found["partitions"], columns, output)


def _group_document(
    group: share_groups.ShareGroupDescription, offsets: Mapping[TopicPartition, share_groups.ShareOffset]
) -> dict[str, Any]:
    lags = [it.lag for it in offsets.values()]
    return {
        "group": group.id,
        "state": group.state,
        "epoch": group.epoch,
        "lag": None if None in lags else sum(lag for lag in lags if lag is not None),
        "members": [
            {
                "member": member.id,
                "client": f"{member.client_id}@{member.host}",
                "epoch": member.epoch,
                "partitions": format_partitions(member.partitions),
            }
            for member in group.members
        ],
        "partitions": [
            {
                "topic": partition[0],
                "partition": partition[1],
                "start": offset.start_offset,
                "lag": offset.lag,
                "members": sum(partition in member.partitions for member in group.members),
            }
            for partition, offset in sorted(offsets.items())
        ],
    }


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(metavar="GROUP", help="Ids of share groups.")],
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Delete share groups and their offsets.

    The groups must have no members.
    """
    if not yes:
        typer.confirm(f"Delete {', '.join(names)} with their offsets?", abort=True)

    async def work(client: KafkaClient) -> None:
        for name in names:
            await share_groups.describe_share_group(client, name)  # raises for a group of another kind
            await groups.delete_group(client, name)
            print(f"share group {name} deleted")

    call_brokers(bootstrap, command_config, work)
