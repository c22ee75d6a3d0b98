"""The client of a telemetry request: its value of each parameter that the `match` of a
client-metrics resource may name (KIP-714)."""

from uuid import UUID

from ottla_broker.requests.context import RequestContext
from ottla_broker.runtime import uuid_text
from ottla_broker.telemetry.client_instances import ClientParameters


def telemetry_client(ctx: RequestContext, instance_id: UUID) -> ClientParameters:
    connection = ctx.connection
    return {
        "client_instance_id": uuid_text(instance_id),
        "client_id": ctx.client_id,
        "client_software_name": connection.software_name,
        "client_software_version": connection.software_version,
        "client_source_address": connection.host,
        "client_source_port": str(connection.port),
    }
