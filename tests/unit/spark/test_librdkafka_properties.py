"""Java's client properties as librdkafka names them."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from ottla_spark.errors import PipelineError
from ottla_spark.librdkafka_properties import to_librdkafka

JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="p" password="a\\"b\\\\c";'


def test_login_of_a_secret_becomes_a_login_of_librdkafka() -> None:
    found = to_librdkafka(
        {
            "bootstrap.servers": "localhost:9092",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": JAAS,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/nowhere/ca.pem",
            "ssl.endpoint.identification.algorithm": "",
            "max.request.size": "2000000",
            "max.poll.records": "10",
        }
    )
    assert found == {
        "bootstrap.servers": "localhost:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "p",
        "sasl.password": 'a"b\\c',
        "ssl.ca.location": "/nowhere/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
        "message.max.bytes": "2000000",
    }
    Producer({name: value for name, value in found.items() if name != "ssl.ca.location"})  # librdkafka knows every name


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ({"ssl.keystore.location": "/x.jks"}, r"^the client property ssl\.keystore\.type=JKS .*allowed: PKCS12\)"),
        ({"ssl.engine.factory.class": "x"}, r"^the client property ssl\.engine\.factory\.class is not supported"),
        ({"sasl.jaas.config": "com.sun.Krb5LoginModule required;"}, r"^the client property sasl\.jaas\.config"),
    ],
)
def test_security_that_librdkafka_does_not_have_is_refused(properties: dict[str, str], sentence: str) -> None:
    with pytest.raises(PipelineError, match=sentence):
        to_librdkafka(properties)
