"""Restarts of all brokers that a user requests with `spec.restartAt`."""

import datetime

from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.common import parse_time


def due_restart(cluster: Cluster, now: datetime.datetime) -> str:
    """The `restartAt` of a Cluster if that time has come, else empty. Brokers are started with the
    `restartAt` that is due, and those with another one are restarted. So each restarts once, and
    the clock of its node does not matter.
    """
    restart_at = cluster.spec.restart_at
    return restart_at if restart_at and parse_time(restart_at) <= now else ""


def describe_restart(due: str, started_after: str) -> str:
    """The reason for restarting a broker; empty if it need not restart. `started_after`: the
    `restartAt` that was due when it started.
    """
    return f"spec.restartAt {due}" if due and due != started_after else ""
