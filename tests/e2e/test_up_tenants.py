"""`ottla up` with the example of two tenants, and clients with the files of their users."""

from pathlib import Path

import confluent_kafka as ck
import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients import librdkafka as rd
from tests.e2e.up_process import UpProcess
from tests.e2e.up_resources import Json, read_librdkafka_settings

EXAMPLE = Path(__file__).parents[2] / "examples" / "tenants"


def example(up: UpProcess) -> list[Json]:
    found: list[Json] = [it for file in sorted(EXAMPLE.glob("*.yaml")) for it in yaml.safe_load_all(file.read_text())]
    for it in found:
        if it["kind"] == "Cluster":
            it["spec"]["listeners"][0]["port"] = up.port
    return found


def test_tenants_use_the_same_names_and_see_only_their_own(up: UpProcess) -> None:
    up.write_resources(*example(up))
    up.start()
    for user in ("acme-billing", "acme-shop", "globex-billing"):
        up.wait_for_line(f"user {user}: clients connect with")
    for topic in ("acme.orders", "globex.orders"):
        up.wait_for_line(f"topic {topic} created")
    users = up.folder / ".ottla" / "shared" / "users"
    shop, billing, globex = (
        read_librdkafka_settings(users / it) for it in ("acme-shop", "acme-billing", "globex-billing")
    )
    assert rd.produce_one(shop, "acme.orders") is None
    for login, topic in ((shop, "globex.orders"), (billing, "acme.orders"), (globex, "acme.orders")):
        error = rd.produce_one(login, topic)
        assert error is not None and error.code() == ck.KafkaError.TOPIC_AUTHORIZATION_FAILED, topic
    admin = AdminClient(shop)
    admin.create_topics([NewTopic("acme.more", 1)])["acme.more"].result(20)
    with pytest.raises(ck.KafkaException, match="AUTHORIZATION_FAILED"):
        admin.create_topics([NewTopic("globex.more", 1)])["globex.more"].result(20)
    assert sorted(AdminClient(billing).list_topics(timeout=10).topics) == ["acme.more", "acme.orders"]
    assert list(AdminClient(globex).list_topics(timeout=10).topics) == ["globex.orders"]
    consumer = ck.Consumer({**billing, "group.id": "acme.reports", "auto.offset.reset": "earliest"})
    consumer.subscribe(["acme.orders"])
    message = consumer.poll(30)
    assert message is not None and message.value() == b"one"
    consumer.close()
    assert up.stop() == 0
