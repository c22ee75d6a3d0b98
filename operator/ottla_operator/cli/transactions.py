"""`ottla transactions`."""

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.cli.command_config import call_brokers
from ottla_operator.cli.exit_codes import CommandError, ExitCode
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
from ottla_operator.formatting import format_count, format_duration, format_partitions
from ottla_operator.kafka import cluster, topics, transactions
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.transactions import ActiveProducer
from ottla_operator.resources.common import parse_duration_ms

FENCE_WAIT_S: Final = 30.0
PRODUCER_COLUMNS: Final = {
    "producerId": "PRODUCER ID",
    "producerEpoch": "EPOCH",
    "coordinatorEpoch": "COORDINATOR EPOCH",
    "lastSequence": "LAST SEQUENCE",
    "lastTimestamp": "LAST RECORD",
    "startOffset": "OPEN SINCE OFFSET",
}
TransactionalId = Annotated[str, typer.Argument(metavar="ID", help="Transactional id.")]
TopicAndPartition = Annotated[
    str, typer.Argument(metavar="TOPIC:PARTITION", help="A partition, such as orders:3.", show_default=False)
]

app = new_app("Manage transactions.")


@app.command("list")
def list_(
    state: Annotated[
        list[str] | None, typer.Option("--state", help="State, such as Ongoing. Repeatable. Default: all.")
    ] = None,
    producer_id: Annotated[
        list[int] | None, typer.Option("--producer-id", help="Producer id. Repeatable. Default: all.")
    ] = None,
    longer_than: Annotated[
        str | None,
        typer.Option("--longer-than", metavar="DURATION", help="Only transactions open for longer, such as 10m."),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option("--pattern", metavar="REGEX", help="Only ids that match as a whole, in the syntax of RE2."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.table,
) -> None:
    """List transactional ids with their state."""
    longer_than_ms = -1 if longer_than is None else _duration_ms(longer_than)

    async def work(client: KafkaClient) -> list[dict[str, Any]]:
        found = await transactions.list_transactions(
            client,
            await cluster.list_broker_ids(client),
            states=state or (),
            producer_ids=producer_id or (),
            running_longer_than_ms=longer_than_ms,
            pattern=pattern,
        )
        return [
            {
                "transactionalId": it.transactional_id,
                "coordinator": it.coordinator,
                "producerId": it.producer_id,
                "state": it.state,
            }
            for it in found
        ]

    columns = {
        "transactionalId": "TRANSACTIONAL ID",
        "coordinator": "COORDINATOR",
        "producerId": "PRODUCER ID",
        "state": "STATE",
    }
    print_rows(call_brokers(bootstrap, command_config, work), columns, output)


@app.command()
def describe(
    transactional_id: TransactionalId,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.table,
) -> None:
    """Describe a transactional id and its open transaction."""
    found = call_brokers(
        bootstrap, command_config, lambda client: transactions.describe_transaction(client, transactional_id)
    )
    fields: dict[str, Any] = {
        "transactionalId": found.transactional_id,
        "state": found.state,
        "producerId": found.producer_id,
        "producerEpoch": found.producer_epoch,
        "timeoutMs": found.timeout_ms,
        "started": None if found.started is None else found.started.isoformat(timespec="milliseconds"),
        "partitions": format_partitions(found.partitions),
    }
    if output is OutputFormat.table:
        age = "" if found.started is None else f" ({format_duration(time.time() - found.started.timestamp())} ago)"
        print_fields(fields | {"started": f"{fields['started'] or '-'}{age}"})
    else:
        print_document(fields, output)


@app.command()
def producers(
    partition: TopicAndPartition,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.table,
) -> None:
    """List the producers of a partition and their open transactions."""
    topic, index = _parse_partition(partition)

    async def work(client: KafkaClient) -> list[dict[str, Any]]:
        found = await transactions.describe_producers(client, [await _describe_partition(client, topic, index)])
        return [_producer_row(it) for it in found]

    print_rows(call_brokers(bootstrap, command_config, work), PRODUCER_COLUMNS, output)


@app.command("find-hanging")
def find_hanging(
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="Topic to search. Repeatable. Default: all topics.")
    ] = None,
    broker: Annotated[
        int | None, typer.Option("--broker", metavar="ID", help="Only partitions with a replica on this broker.")
    ] = None,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than",
            metavar="DURATION",
            help="Only transactions without a record for this long. Give at least the brokers' "
            "transaction.max.timeout.ms.",
        ),
    ] = "15m",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.table,
) -> None:
    """Find open transactions that no coordinator will end.

    Such a transaction holds back the read_committed consumers of its partition forever.
    `ottla transactions abort` ends it.
    """
    age_ms = _duration_ms(older_than)

    async def work(client: KafkaClient) -> list[dict[str, Any]]:
        found = await (topics.require_topics(client, topic) if topic else _all_topics(client))
        selected = [_keep_partitions_on(it, broker) for it in found.values()]
        hanging = await transactions.find_hanging_transactions(
            client, await cluster.list_broker_ids(client), selected, silent_since_ms=_now_ms() - age_ms
        )
        return [
            {"topic": it.topic, "partition": it.partition, "transactionalId": transactional_id} | _producer_row(it)
            for it, transactional_id in hanging
        ]

    columns = {"topic": "TOPIC", "partition": "PARTITION", "transactionalId": "TRANSACTIONAL ID"} | PRODUCER_COLUMNS
    print_rows(call_brokers(bootstrap, command_config, work), columns, output)


@app.command()
def abort(
    partition: TopicAndPartition,
    start_offset: Annotated[
        int | None,
        typer.Option("--start-offset", metavar="N", help="Start of the transaction, as find-hanging prints it."),
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", metavar="N", help="Producer id, instead of --start-offset.")
    ] = None,
    producer_epoch: Annotated[
        int | None, typer.Option("--producer-epoch", metavar="N", help="Epoch of the producer. Needs --producer-id.")
    ] = None,
    coordinator_epoch: Annotated[
        int | None,
        typer.Option("--coordinator-epoch", metavar="N", help="Epoch of its coordinator. Needs --producer-id."),
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Abort a hanging transaction in one partition.

    An abort of a transaction that does not hang breaks its atomicity. Fence its producer instead.

    Example: ottla transactions abort orders:3 --start-offset 1042
    """
    topic, index = _parse_partition(partition)
    given = [it for it in (producer_id, producer_epoch, coordinator_epoch) if it is not None]
    if len(given) != (3 if start_offset is None else 0):
        raise typer.BadParameter("give --start-offset, or --producer-id, --producer-epoch and --coordinator-epoch")

    async def work(client: KafkaClient) -> None:
        described = await _describe_partition(client, topic, index)
        found = given if start_offset is None else await _find_producer(client, described, start_offset)
        producer, epoch, epoch_of_coordinator = found
        subject = f"transaction of producer {producer} (epoch {epoch}) in {topic}-{index}"
        if dry_run:
            print(f"{subject} would be aborted")
            return
        if not yes:
            typer.confirm(f"Abort the {subject}?", abort=True)
        leader = described.partitions[0].leader
        if leader < 0:
            raise KafkaError(ErrorCode.leader_not_available, f"partition {topic}-{index} has no leader")
        await transactions.abort_in_partition(client, (topic, index), leader, producer, epoch, epoch_of_coordinator)
        print(f"{subject} aborted")

    call_brokers(bootstrap, command_config, work)


@app.command()
def fence(
    transactional_ids: Annotated[list[str], typer.Argument(metavar="ID", help="Transactional ids.")],
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Fence producers, and abort their open transactions.

    A producer that still runs gets a fatal error.
    """
    if not yes:
        producers = format_count(len(transactional_ids), "producer")
        typer.confirm(f"Fence {producers} and abort open transactions?", abort=True)

    async def work(client: KafkaClient) -> None:
        for transactional_id in transactional_ids:
            await transactions.describe_transaction(client, transactional_id)  # fencing would create an unknown id
            await transactions.fence_producer(client, transactional_id, FENCE_WAIT_S)
            print(f"{transactional_id} fenced")

    call_brokers(bootstrap, command_config, work)


def _producer_row(producer: ActiveProducer) -> dict[str, Any]:
    last_timestamp = datetime.fromtimestamp(producer.last_timestamp_ms / 1000, UTC)
    return {
        "producerId": producer.producer_id,
        "producerEpoch": producer.epoch,
        "coordinatorEpoch": producer.coordinator_epoch if producer.coordinator_epoch >= 0 else None,
        "lastSequence": producer.last_sequence if producer.last_sequence >= 0 else None,
        "lastTimestamp": last_timestamp.isoformat(timespec="milliseconds") if producer.last_timestamp_ms >= 0 else None,
        "startOffset": producer.transaction_start,
    }


async def _find_producer(
    client: KafkaClient, partition: topics.TopicDescription, start_offset: int
) -> tuple[int, int, int]:
    """Producer id, producer epoch and coordinator epoch of the open transaction that began at the
    offset. Raises CommandError if there is none.
    """
    for producer in await transactions.describe_producers(client, [partition]):
        if producer.transaction_start == start_offset:
            return producer.producer_id, producer.epoch, producer.coordinator_epoch
    name = f"{partition.name}-{partition.partitions[0].index}"
    raise CommandError(ExitCode.not_found, f"no transaction that began at offset {start_offset} is open in {name}")


async def _describe_partition(client: KafkaClient, topic: str, index: int) -> topics.TopicDescription:
    """The topic with this partition only. Raises KafkaError, CommandError if there is no such topic
    or partition.
    """
    found = await topics.describe_topic(client, topic)
    chosen = tuple(it for it in found.partitions if it.index == index)
    if not chosen:
        last = len(found.partitions) - 1
        raise CommandError(ExitCode.not_found, f"topic {topic!r} has no partition {index}; it has 0 to {last}")
    return replace(found, partitions=chosen)


def _keep_partitions_on(topic: topics.TopicDescription, broker: int | None) -> topics.TopicDescription:
    """The topic without the partitions that have no replica on the broker; None keeps all."""
    return replace(topic, partitions=tuple(it for it in topic.partitions if broker is None or broker in it.replicas))


async def _all_topics(client: KafkaClient) -> dict[str, topics.TopicDescription]:
    return {it.name: it for it in await topics.list_topics(client)}


def _parse_partition(text: str) -> tuple[str, int]:
    topic, _, number = text.rpartition(":")
    if not topic or not number.isdecimal():
        raise typer.BadParameter(f"{text!r} is not TOPIC:PARTITION, such as orders:3")
    return topic, int(number)


def _duration_ms(text: str) -> int:
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
