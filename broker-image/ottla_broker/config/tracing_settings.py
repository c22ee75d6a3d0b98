"""Settings of OpenTelemetry traces.

Their names are those of OpenTelemetry's Java agent, which people add to Apache Kafka's brokers:
https://opentelemetry.io/docs/languages/java/configuration.
"""

from urllib.parse import urlsplit

from ottla_broker.config.addresses import parse_http_url
from ottla_broker.config.setting import BROKER_SETTINGS, Section, UpdateMode
from ottla_broker.config.value_types import ValueType, double, parsed, string


def parse_collector_url(text: str) -> str:
    """The URL without a slash at its end. Raises ValueError."""
    url = parse_http_url(text)
    if "@" in urlsplit(url).netloc:
        raise ValueError("a URL with a login would be shown to everybody who may describe the broker")
    return url.rstrip("/")


def collector_url() -> ValueType[str]:
    return parsed(parse_collector_url, "http://host:port or https://host:port, with or without a path")


# fmt: off
_tracing = Section("OpenTelemetry traces", BROKER_SETTINGS)

OTEL_EXPORTER_OTLP_ENDPOINT = _tracing.row("otel.exporter.otlp.endpoint", collector_url(), None,
    "OpenTelemetry collector that traces of requests are sent to, by OTLP over HTTP (Protobuf): port 4318 of most "
    "collectors. `/v1/traces` is appended. Not set: nothing is traced. It needs the extra `ottla[telemetry]`.",
    is_ottla_only=True)
OTEL_TRACES_SAMPLER_ARG = _tracing.row("otel.traces.sampler.arg", double(at_least=0, at_most=1), 0.01,
    "Share of Produce requests, and of consumers' Fetch requests, that are traced. A traced request costs a few "
    "hundred microseconds of the broker's time, so a broker traces 100 requests per second at most, whatever the "
    "share. OpenTelemetry's own default is 1.", UpdateMode.CLUSTER_WIDE, is_ottla_only=True)
OTEL_SERVICE_NAME = _tracing.row("otel.service.name", string("a name", empty=False), "ottla-broker",
    "Name of the service in traces. The broker's `node.id` is the instance of the service.", is_ottla_only=True)
