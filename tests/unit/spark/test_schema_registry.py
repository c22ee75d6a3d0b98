"""The client of the schema registry: what it takes from the properties of a Kafka client."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla_spark.errors import PipelineError
from ottla_spark.reader_schemas import connect_registry
from ottla_spark.schema_registry import NO_REGISTRY, registry_of
from tests.unit.spark.small_pipeline import small_pipeline

JAVA_STORES = {
    "bootstrap.servers": "localhost:9092",
    "security.protocol": "SSL",
    "ssl.truststore.type": "JKS",
    "ssl.truststore.location": "/nowhere/trust.jks",
    "ssl.keystore.location": "/nowhere/keys.jks",
}
KERBEROS = {"sasl.mechanism": "GSSAPI", "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"}
HTTP, HTTPS = "http://localhost:8081", "https://localhost:8081"
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="p" password="a\\"b";'


@pytest.mark.parametrize("kafka", [JAVA_STORES, KERBEROS, {"ssl.engine.factory.class": "x"}])
def test_unsupported_properties_are_no_error_over_http_or_if_no_registry_is_needed(kafka: dict[str, str]) -> None:
    for url in ("", HTTPS):
        assert connect_registry(small_pipeline(), url, kafka) == NO_REGISTRY
    framed = small_pipeline(s={"topic": "t", "format": {"type": "avro", "schemaRef": {}}})
    assert connect_registry(framed, HTTP, kafka).url == HTTP
    with pytest.raises(PipelineError, match=r"^spec\.sources\.s\.format needs a schema registry"):
        connect_registry(framed, "", kafka)


def test_truststore_of_another_type_is_refused_where_tls_needs_it() -> None:
    for type_ in ("JKS", "PKCS12"):
        with pytest.raises(PipelineError, match=rf"ssl\.truststore\.type={type_} .*{HTTPS}; allowed: PEM$"):
            registry_of(HTTPS, JAVA_STORES | {"ssl.truststore.type": type_})


def test_login_and_certificates_are_those_of_the_kafka_client(tmp_path: Path) -> None:
    authorities = tmp_path / "ca.pem"
    authorities.write_text("authorities")
    kafka = {
        "sasl.jaas.config": SCRAM,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authorities),
        "ssl.keystore.certificate.chain": "chain",
        "ssl.keystore.key": "key",
    }
    found = registry_of(HTTPS, kafka)
    assert (found.login, found.authorities, found.certificate) == ('p:a"b', "authorities", "chain\nkey")
    missing = str(tmp_path / "none.pem")
    with pytest.raises(
        PipelineError, match=rf"^the client property ssl\.truststore\.location={missing}: .*No such file"
    ):
        registry_of(HTTPS, kafka | {"ssl.truststore.location": missing})
