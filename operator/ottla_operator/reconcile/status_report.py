"""Writes the status of a Topic, Group, Schema or User after its reconcile."""

from collections.abc import Mapping

from ottla_operator.plan.conditions import STALLED, Conditions, Readiness, Stalled, find_condition
from ottla_operator.reconcile.platform import Platform, PlatformError
from ottla_operator.resources.model import Json


async def report_status(platform: Platform, body: Json, readiness: Readiness, fields: Mapping[str, Json]) -> bool:
    """Writes the status, and records an event if the resource has just stalled. If the platform
    rejects the status, records an event about that and returns False. Raises PlatformError while
    the platform is unavailable.
    """
    reported = find_condition(body, STALLED).get("message")
    try:
        await platform.write_status(body, Conditions(readiness, body["metadata"]["generation"]), fields)
    except PlatformError as error:
        if error.is_unavailable:
            raise
        message = f"cannot write the status: {error}"
        await platform.record_event(body, "StatusWriteFailed", message, is_warning=True, lasts=True)
        return False
    if isinstance(readiness, Stalled) and reported != readiness.message:
        await platform.record_event(body, readiness.reason, readiness.message, is_warning=True)
    return True
