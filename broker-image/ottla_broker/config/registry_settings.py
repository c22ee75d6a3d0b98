"""Settings of the schema registry that every broker can serve."""

from ottla_broker.config.addresses import http_address
from ottla_broker.config.setting import BROKER_SETTINGS, Section
from ottla_broker.config.value_types import short, string

# fmt: off
_registry = Section("Schema registry", BROKER_SETTINGS)

SCHEMA_REGISTRY_LISTENER = _registry.row("schema.registry.listener", http_address(), None,
    "Address that serves the schema registry, Confluent's REST interface. Not set: this broker serves none. It needs "
    "the extra `ottla[registry]`.", is_ottla_only=True)
SCHEMA_REGISTRY_SECURITY_LISTENER = _registry.row(
    "schema.registry.security.listener", string("a listener's name", empty=False), None,
    "Name of the listener whose TLS and logins hold for the registry as well: its certificates, and HTTP basic "
    "authentication with its SASL users. Not set: the first of `listeners`.", is_ottla_only=True)
SCHEMA_REGISTRY_TOPIC_REPLICATION_FACTOR = _registry.row(
    "schema.registry.topic.replication.factor", short(at_least=1), 3,
    "Replication factor of `_schemas`, which the first write to the registry creates. With fewer brokers, their "
    "number.",
    is_ottla_only=True)
