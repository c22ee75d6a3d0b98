"""`ottla cluster recover`."""

import asyncio
import uuid
from typing import Annotated, Any, Final

import typer

from ottla_broker.runtime import uuid_text
from ottla_broker.wire.client_security import ClientSecurity
from ottla_operator.cli.command_config import read_security
from ottla_operator.cli.exit_codes import CommandError, ExitCode, run_command
from ottla_operator.cli.options import CommandConfig, DryRun, OutputFormat, Yes
from ottla_operator.cli.output import print_rows
from ottla_operator.kafka import quorum_recovery
from ottla_operator.plan.quorum_recovery import (
    MetadataReplica,
    Recovery,
    RecoveryRefused,
    describe_loss,
    observe_quorum,
    plan_recovery,
)

LEADER_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.2
COLUMNS: Final = {
    "broker": "BROKER",
    "address": "ADDRESS",
    "cluster": "CLUSTER",
    "voter": "VOTER",
    "logEnd": "LOG END",
    "epoch": "EPOCH",
}


def recover(
    bootstrap: Annotated[
        str,
        typer.Option(
            "--bootstrap",
            "-b",
            envvar="OTTLA_BOOTSTRAP",
            metavar="HOST:PORT,…",
            help="Addresses of ALL brokers that still have a disk. Other voters that their logs name are asked too.",
        ),
    ],
    yes: Yes = False,
    dry_run: DryRun = False,
    command_config: CommandConfig = None,
) -> None:
    """Recover a cluster that has lost most of its voters.

    Use it when the disks of a majority of voters are lost for good. Continues from the most
    advanced metadata log of the remaining brokers, under a new cluster id. Data that only the lost
    disks had is lost. Lost brokers that return are refused, because their disks belong to the old
    cluster.

    A cluster with a majority of its voters elects a leader by itself and is not changed.
    """
    security = read_security(command_config)

    async def work() -> None:
        found = await quorum_recovery.describe_all_replicas(_addresses(bootstrap), security)
        replicas = [it for it in found.values() if isinstance(it, MetadataReplica)]
        _print_replicas(found)
        if not replicas:
            raise CommandError(ExitCode.unreachable, "no broker responds")
        try:
            recovery = plan_recovery(replicas, uuid_text(uuid.uuid4()))
        except RecoveryRefused as refused:
            raise CommandError(ExitCode.failed, str(refused)) from refused
        _print_recovery(recovery)
        if dry_run:
            return
        if not yes:
            typer.confirm("Continue?", abort=True)
        await _recover(recovery, security)

    run_command(work())


async def _recover(recovery: Recovery, security: ClientSecurity) -> None:
    for replica in recovery.steps:
        await quorum_recovery.recover_replica(recovery, replica, security)
        print(
            f"broker {replica.broker} restarts {'with its log' if replica is recovery.leader else 'and copies the log'}"
        )
    await _wait_for_leader(recovery, security)
    print(f"cluster {recovery.cluster_id} is led by broker {recovery.leader.broker}; check it: ottla cluster health")


async def _wait_for_leader(recovery: Recovery, security: ClientSecurity) -> None:
    address = recovery.leader.address
    try:
        async with asyncio.timeout(LEADER_TIMEOUT_S):
            while True:
                found = (await quorum_recovery.describe_replicas([address], security))[address]
                if isinstance(found, MetadataReplica) and found.leader == found.broker:
                    return
                await asyncio.sleep(POLL_S)
    except TimeoutError as error:
        broker = recovery.leader.broker
        message = (
            f"broker {broker} does not lead after {LEADER_TIMEOUT_S:.0f} s; see its log, and start it if it is stopped"
        )
        raise CommandError(ExitCode.failed, message) from error


def _addresses(bootstrap: str) -> list[str]:
    return [it.strip() for it in bootstrap.split(",") if it.strip()]


def _print_replicas(by_address: dict[str, MetadataReplica | str]) -> None:
    replicas = [it for it in by_address.values() if isinstance(it, MetadataReplica)]
    state = observe_quorum(replicas)
    voters = {(it.broker, it.directory) for it in state.replica.voters} if state else set()
    rows: list[dict[str, Any]] = [
        {
            "broker": it.broker,
            "address": it.address,
            "cluster": it.cluster_id or "none",
            "voter": (it.broker, it.directory) in voters,
            "logEnd": it.log_end[1] if it.cluster_id else None,
            "epoch": it.log_end[0] if it.cluster_id else None,
        }
        for it in sorted(replicas, key=lambda it: it.broker)
    ]
    if rows:
        print_rows(rows, COLUMNS, OutputFormat.table)
    for address, reason in by_address.items():
        if isinstance(reason, str):
            print(f"{address}: {reason}")
    print()


def _print_recovery(recovery: Recovery) -> None:
    state, leader = recovery.state, recovery.leader
    epoch, offset = leader.log_end
    survivors = ", ".join(map(str, recovery.survivors))
    print(describe_loss(state))
    print(f"continues from broker {leader.broker}: metadata up to offset {offset} of epoch {epoch}")
    print("may be missing: changes of topics, settings and in-sync replicas after that, and records of partitions")
    print("whose in-sync replicas were all on lost disks")
    print(f"continues with the disks of brokers {survivors} as cluster {recovery.cluster_id}; other disks are refused")
