"""The URL of an OpenTelemetry collector."""

import pytest

from ottla_broker.config import OTEL_EXPORTER_OTLP_ENDPOINT, SettingError


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://localhost:4318", "http://localhost:4318"),
        (" https://traces.example/otlp/ ", "https://traces.example/otlp"),
        ("http://[::1]:4318/", "http://[::1]:4318"),
    ],
)
def test_url_of_a_collector_loses_spaces_and_its_last_slash(text: str, url: str) -> None:
    assert OTEL_EXPORTER_OTLP_ENDPOINT.parse(text) == url


@pytest.mark.parametrize(
    "text", ["", "localhost:4318", "grpc://localhost:4317", "http://", "http://a:port", "http://a?b", "http://a:99999"]
)
def test_invalid_urls_of_collectors_are_refused(text: str) -> None:
    with pytest.raises(SettingError, match=r"otel\.exporter\.otlp\.endpoint cannot be .*; allowed: http://host:port"):
        OTEL_EXPORTER_OTLP_ENDPOINT.parse(text)


def test_login_in_the_url_is_refused() -> None:
    with pytest.raises(SettingError, match="would be shown to everybody"):
        OTEL_EXPORTER_OTLP_ENDPOINT.parse("http://user:password@localhost:4318")
