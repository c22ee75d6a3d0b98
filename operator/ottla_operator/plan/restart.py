"""Restarts of all brokers by hand: `spec.restartAt`."""

import datetime

from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.common import parse_time


def due_restart(cluster: Cluster, now: datetime.datetime) -> str:
    """The `restartAt` of a Cluster if that time has come, else empty. A broker that was started
    after another `restartAt` is restarted, so each is restarted once, independent of the clocks of
    its node and of the operator.
    """
    restart_at = cluster.spec.restart_at
    return restart_at if restart_at and parse_time(restart_at) <= now else ""


def describe_restart(due: str, started_after: str) -> str:
    """The reason why a broker is restarted; empty if it is not. `started_after`: the `restartAt`
    that it was started after.
    """
    return f"spec.restartAt {due}" if due and due != started_after else ""
