"""Rotates the passwords between brokers: asks each for the version of its login module, and takes
the next step when all have the present one."""

import asyncio
import datetime
from collections.abc import Collection
from dataclasses import dataclass

from ottla_broker.wire.errors import KafkaError
from ottla_operator.formatting import format_brokers
from ottla_operator.kafka.client import BROKER_TIMEOUT_S, KafkaClient, Unreachable
from ottla_operator.kafka.configs import ConfigResourceType, describe_configs
from ottla_operator.plan.inter_broker_login import VERSION_SETTING
from ottla_operator.plan.password_rotation import (
    LoginSecret,
    describe_step,
    due_rotation,
    find_outdated_brokers,
    is_rotation_due,
    next_rotation_step,
)
from ottla_operator.reconcile.platform import BrokerSet
from ottla_operator.resources.cluster import Cluster


@dataclass(frozen=True, slots=True)
class RotationProgress:
    """`rotated_at`: the `spec.rotatePasswordsAt` that the passwords were generated for; empty
    during a rotation, and if none was due then. `begun`: the step that this reconcile has begun.
    `in_progress`: that step, or what the rotation waits for; empty without one.
    """

    rotated_at: str = ""
    begun: str = ""
    in_progress: str = ""


async def rotate_passwords(
    client: KafkaClient | None, cluster: Cluster, brokers: BrokerSet, *, is_rolling: bool
) -> RotationProgress:
    """Takes one step at most. While brokers are restarted, or none can be asked, it waits."""
    login, now = brokers.login, datetime.datetime.now(datetime.UTC)
    if login is None:
        return RotationProgress()
    due = due_rotation(cluster, now)
    if not is_rotation_due(login, due):
        return RotationProgress(login.rotated_at)
    if client is None or is_rolling:
        return RotationProgress(in_progress="waiting for brokers that are being restarted or cannot be reached")
    existing = brokers.brokers.keys()
    versions = await _read_versions(client, existing)
    following = next_rotation_step(login, due, versions, existing, now)
    if following is None:
        return RotationProgress(in_progress=_describe_waiting(login, versions, existing))
    await brokers.save_login(following)
    begun = describe_step(following)
    return RotationProgress("", begun, begun) if following.step else RotationProgress(following.rotated_at, begun)


def _describe_waiting(login: LoginSecret, versions: dict[int, str], existing: Collection[int]) -> str:
    if outdated := find_outdated_brokers(login, versions, existing):
        verb = "has" if len(outdated) == 1 else "have"
        waiting = f"waiting until {format_brokers(outdated)} {verb} read the login file of this step"
    else:
        waiting = "waiting for connections with the previous passwords to end"
    return f"{describe_step(login)}; {waiting}" if login.step else waiting


async def _read_versions(client: KafkaClient, brokers: Collection[int]) -> dict[int, str]:
    """The version of the login module that each broker has. Omits brokers that do not respond."""
    ids = list(brokers)
    found = await asyncio.gather(*(_read_version(client, it) for it in ids))
    return {broker: version for broker, version in zip(ids, found, strict=True) if version}


async def _read_version(client: KafkaClient, broker: int) -> str:
    try:
        async with asyncio.timeout(BROKER_TIMEOUT_S):
            (result,) = await describe_configs(
                client, ConfigResourceType.broker, (str(broker),), (VERSION_SETTING,), broker=broker
            )
    except (Unreachable, KafkaError, TimeoutError):
        return ""
    return next((entry.value or "" for entry in result.configs if entry.name == VERSION_SETTING), "")
