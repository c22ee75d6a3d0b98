"""`ottla diff`."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ottla_operator.certificates.client_certificate import NoPrincipal, principal_name
from ottla_operator.cli.command_config import call_brokers
from ottla_operator.cli.exit_codes import CommandError, ExitCode
from ottla_operator.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, CommandConfig, Output, OutputFormat, new_app
from ottla_operator.cli.output import print_rows
from ottla_operator.formatting import format_count
from ottla_operator.kafka import configs
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.cluster import describe_cluster
from ottla_operator.local.documents import Document, InvalidFiles, find_files, read_file
from ottla_operator.plan.differences import Difference, cluster_differences, topic_differences, user_differences
from ottla_operator.plan.listener_security import has_access_rules
from ottla_operator.plan.users import desired_user
from ottla_operator.reconcile.topic_changes import observe_topics
from ottla_operator.reconcile.user_changes import observe_users
from ottla_operator.resources.access_policy import AccessPolicy
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.topic import Topic
from ottla_operator.resources.user import User

KINDS = ("Cluster", "Topic", "User")
"""Kinds that brokers can be compared with."""
POLICY = "AccessPolicy"
"""Compared as a part of its Users."""

Differences = Sequence[tuple[Document, Sequence[Difference]]]

app = new_app()


@app.command()
def diff(
    inputs: Annotated[list[Path], typer.Argument(metavar="DIR|FILE", help="YAML files or folders.")],
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", help="Cluster to compare with the brokers. Required if the files have several."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.table,
) -> None:
    """Show what `ottla up` or the operator would change on the brokers.

    Compares Clusters (number of brokers, settings), Topics and Users, and lists resources of
    other kinds, which it cannot compare. Changes nothing. Exits with 1 if there are differences.

    Example: ottla diff orders.yaml --bootstrap localhost:9092
    """
    try:
        # Not validated together: a file may have one Topic without its Cluster.
        documents = [it for file in find_files(inputs) for it in read_file(file)]
    except InvalidFiles as error:
        raise CommandError(ExitCode.usage, str(error)) from error
    selected = select_documents(documents, cluster)
    found = call_brokers(bootstrap, command_config, lambda client: find_differences(client, selected))
    if left_out := [f"{it.kind} {it.name}" for it in documents if it.kind not in (*KINDS, POLICY)]:
        typer.echo(f"not compared: {', '.join(left_out)}", err=True)
    rows = [_row(document, it) for document, differences in found for it in differences]
    if output is OutputFormat.table and not rows:
        print(f"no differences: {format_count(len(found), 'resource')}")
        return
    print_rows(rows, {it: it.upper() for it in ("kind", "name", "field", "current", "desired")}, output)
    if rows:
        raise typer.Exit(ExitCode.failed)


def _row(document: Document, difference: Difference) -> Mapping[str, Any]:
    desired = difference.desired if difference.is_possible else f"impossible: {difference.desired}"
    return {
        "kind": document.kind,
        "name": document.name,
        "field": difference.field,
        "current": difference.current,
        "desired": desired,
        "isPossible": difference.is_possible,
    }


def select_documents(documents: Iterable[Document], cluster: str | None) -> list[Document]:
    """The resources of one Cluster, and those that belong to none, of the kinds that are compared
    (`KINDS`, `POLICY`). Raises CommandError if they are of several Clusters and `cluster` is None,
    or if none is of `cluster`.
    """
    found = [it for it in documents if it.kind in (*KINDS, POLICY)]
    names = sorted({name for it in found if (name := _cluster_name(it)) is not None})
    if cluster is None and len(names) > 1:
        raise CommandError(ExitCode.usage, f"the files have several Clusters; set --cluster: {', '.join(names)}")
    if cluster is not None and cluster not in names:
        raise CommandError(ExitCode.usage, f"no resource is of Cluster {cluster!r}; in the files: {', '.join(names)}")
    return [it for it in found if _cluster_name(it) in (None, cluster or next(iter(names), None))]


def _cluster_name(document: Document) -> str | None:
    """Name of the Cluster that a resource is or belongs to; None without `spec.clusterRef`."""
    if document.kind == "Cluster":
        return document.name
    reference = document.data["spec"].get("clusterRef")
    return None if reference is None else str(reference["name"])


async def find_differences(client: KafkaClient, documents: Sequence[Document]) -> Differences:
    """Compares each resource with the brokers. Raises KafkaError, Unreachable."""
    clusters = [it for it in documents if it.kind == "Cluster"]
    topics = [it for it in documents if it.kind == "Topic"]
    users = [it for it in documents if it.kind == "User"]
    policies = {it.name: AccessPolicy.parse(it.data) for it in documents if it.kind == POLICY}
    return [
        *[(it, await _compare_cluster(client, Cluster.parse(it.data))) for it in clusters],
        *(await _compare_topics(client, topics)),
        *(await _compare_users(client, users, clusters, policies)),
    ]


async def _compare_cluster(client: KafkaClient, cluster: Cluster) -> list[Difference]:
    brokers = [it.id for it in (await describe_cluster(client, include_fenced=True)).brokers if not it.is_fenced]

    async def describe(broker: int) -> Mapping[str, str | None]:
        type_ = configs.ConfigResourceType.broker
        (result,) = await configs.describe_configs(client, type_, [str(broker)], broker=broker)
        return {it.name: it.value for it in result.configs}

    answers = await asyncio.gather(*map(describe, brokers))
    return cluster_differences(cluster, brokers, dict(zip(brokers, answers, strict=True)))


async def _compare_topics(client: KafkaClient, documents: Sequence[Document]) -> Differences:
    topics = [Topic.parse(it.data) for it in documents]
    observed = await observe_topics(client, topics)
    return [
        (document, topic_differences(topic, observed.get(topic.topic_name)))
        for document, topic in zip(documents, topics, strict=True)
    ]


async def _compare_users(
    client: KafkaClient,
    documents: Sequence[Document],
    clusters: Sequence[Document],
    policies: Mapping[str, AccessPolicy | None],
) -> Differences:
    if not documents:
        return []
    observed = await observe_users(client)
    cluster = Cluster.parse(clusters[0].data) if clusters else None
    has_acls = observed.has_acls if cluster is None else has_access_rules(cluster)
    found: list[tuple[Document, Sequence[Difference]]] = []
    for document in documents:
        user = User.parse(document.data)
        try:
            name = user.user_name if cluster is None else principal_name(user, cluster)
        except NoPrincipal as reason:
            found.append((document, [Difference("userName", "", str(reason), is_possible=False)]))
            continue
        desired = desired_user(user, name, policies, is_password_set=True)
        found.append((document, user_differences(desired, observed.of(name), has_acls=has_acls)))
    return found
