"""`ottla up` with users whose client certificates the Cluster's own authority issues, and real
clients with the users' own files.
"""

import shutil
import time
from pathlib import Path
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer

from ottla_operator.certificates.internal_authority import read_authorities
from ottla_operator.certificates.x509 import issue_client_certificate
from ottla_operator.local.home import read_texts
from ottla_operator.plan.certificate_renewal import Validity
from ottla_operator.resources.cluster import Cluster
from tests.clients import librdkafka as rd
from tests.e2e.java_tools import run_java_tool
from tests.e2e.up_process import UpProcess
from tests.e2e.up_resources import Json, read_librdkafka_settings, resource, topic
from tests.waiting import eventually

DAY = 86_400
RULES = [{"allow": ["Read", "Write"], "topic": "orders*"}, {"allow": ["Read"], "group": "billing*"}]


def cluster(up: UpProcess, **spec: Any) -> Json:
    listeners = [{"name": "safe", "port": up.port, "tls": True, "authentication": "TLS"}]
    tls, acl = {"issuer": "Internal"}, {"type": "ACL"}
    return resource(
        "Cluster", "demo", **{"replicas": 1, "listeners": listeners, "tls": tls, "authorization": acl, **spec}
    )


def user(name: str = "billing", **spec: Any) -> Json:
    return resource("User", name, **{"clusterRef": {"name": "demo"}, "authentication": {"type": "TLS"}, **spec})


def files_of(up: UpProcess, name: str = "billing") -> Path:
    return up.folder / ".ottla" / "demo" / "users" / name


def librdkafka(up: UpProcess, name: str = "billing") -> dict[str, Any]:
    return read_librdkafka_settings(files_of(up, name))


def test_clients_connect_with_the_files_of_their_user_and_may_do_what_its_rules_say(up: UpProcess) -> None:
    up.write_resources(cluster(up), topic("orders"), topic("secrets"), user(acls=RULES))
    up.start()
    up.wait_for_line("clients connect with")
    up.wait_for_line("topic secrets created")
    settings = librdkafka(up)
    assert rd.produce_one(settings, "orders") is None
    error = rd.produce_one(settings, "secrets")
    assert error is not None and error.code() == ck.KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert list(AdminClient(settings).list_topics(timeout=10).topics) == ["orders"]
    folder = files_of(up)
    python = {
        "bootstrap_servers": settings["bootstrap.servers"],
        "security_protocol": "SSL",
        "ssl_cafile": str(folder / "ca.crt"),
        "ssl_certfile": str(folder / "user.crt"),
        "ssl_keyfile": str(folder / "user.key"),
    }
    producer = KafkaProducer(**python)
    assert producer.send("orders", b"two").get(20).topic == "orders"
    producer.close()
    consumer = KafkaConsumer(
        "orders", group_id="billing-1", auto_offset_reset="earliest", consumer_timeout_ms=20_000, **python
    )
    assert {next(consumer).value for _ in range(2)} == {b"one", b"two"}
    consumer.close()
    listed = up.run_ottla(
        *("acls", "list", "--bootstrap", settings["bootstrap.servers"], "--command-config"),
        str(folder / "client.properties"),
    )
    assert "CLUSTER_AUTHORIZATION_FAILED" in (listed.stdout + listed.stderr).upper().replace(" ", "_")
    assert up.stop() == 0
    assert "PRIVATE" not in "\n".join(up.lines)


def test_java_clients_read_pem_and_both_stores(up: UpProcess, tmp_path: Path) -> None:
    up.write_resources(cluster(up), topic("orders"), user(userName="Billing, Ltd.", acls=RULES))
    up.start()
    up.wait_for_line("clients connect with")
    up.wait_for_line("topic orders created")
    folder, bootstrap = files_of(up), f"127.0.0.1:{up.port}"
    assert (folder / "username").read_text() == "CN=Billing\\, Ltd."
    password = (folder / "user.password").read_text()
    stores = tmp_path / "stores.properties"
    stores.write_text(
        "security.protocol=SSL\n"
        f"ssl.keystore.type=PKCS12\nssl.keystore.location={folder / 'user.p12'}\nssl.keystore.password={password}\n"
        f"ssl.key.password={password}\n"
        f"ssl.truststore.type=PKCS12\nssl.truststore.location={folder / 'ca.p12'}\n"
        f"ssl.truststore.password={password}\n"
    )
    for file in (folder / "client.properties", stores):
        done = run_java_tool(
            "org.apache.kafka.tools.TopicCommand",
            *("--bootstrap-server", bootstrap, "--command-config", str(file), "--list"),
        )
        assert "orders" in done.splitlines(), done
    assert up.stop() == 0


def test_a_certificate_is_renewed_while_the_one_before_stays_valid(up: UpProcess) -> None:
    up.write_resources(cluster(up), topic("orders"), user(acls=RULES))
    up.start()
    up.wait_for_line("clients connect with")
    up.wait_for_line("topic orders created")
    assert up.stop() == 0
    authority_files = read_texts(up.folder / ".ottla" / "demo" / "authority")
    (authority,) = read_authorities(Cluster.parse(cluster(up)), authority_files)
    began = time.time() - 61 * DAY
    certificate, key = issue_client_certificate(authority, "CN=billing", Validity(began, began + 90 * DAY))
    folder = files_of(up)
    (folder / "user.crt").write_text(certificate)
    (folder / "user.key").write_text(key)
    before = {**librdkafka(up)}
    for name in ("user.crt", "user.key"):
        (up.folder / name).write_text((folder / name).read_text())
    before |= {"ssl.certificate.location": str(up.folder / "user.crt"), "ssl.key.location": str(up.folder / "user.key")}
    up.start()
    up.wait_for_line("user billing: client certificate issued")
    eventually(lambda: (folder / "user.crt").read_text() != certificate)
    assert rd.produce_one(before, "orders") is None
    assert rd.produce_one(librdkafka(up), "orders") is None
    assert up.stop() == 0


def test_mapping_rules_make_user_names_and_a_user_that_no_rule_matches_is_reported(up: UpProcess) -> None:
    rules = {"config": {"ssl.principal.mapping.rules": "RULE:^CN=([a-z]+)$/$1/"}}
    up.write_resources(
        cluster(up, **rules), topic("orders"), user(acls=RULES), user("other", userName="Other", acls=[])
    )
    up.start()
    up.wait_for_line("clients connect with")
    up.wait_for_line("no rule of ssl.principal.mapping.rules=RULE:^CN=([a-z]+)$/$1/ matches CN=Other")
    up.wait_for_line("topic orders created")
    assert (files_of(up) / "username").read_text() == "billing"
    assert rd.produce_one(librdkafka(up), "orders") is None
    settings, kept = librdkafka(up), up.folder / "kept"
    shutil.copytree(files_of(up), kept)  # the folder is deleted with the User
    settings |= {key: str(kept / Path(it).name) for key, it in settings.items() if key.endswith(".location")}
    up.write_resources(cluster(up, **rules), topic("orders"))
    up.wait_for_line("user billing is no longer described")
    eventually(lambda: rd.produce_one(settings, "orders") is not None, within_s=60)
    assert up.stop() == 0


def test_an_edited_policy_changes_what_its_users_may_do(up: UpProcess) -> None:
    def policy(*operations: str) -> Json:
        return resource("AccessPolicy", "orders", acls=[{"allow": list(operations), "topic": "orders*"}])

    billing = user(aclsFrom=[{"name": "orders"}])
    up.write_resources(cluster(up), topic("orders"), policy("Read"), billing)
    up.start()
    up.wait_for_line("clients connect with")
    up.wait_for_line("topic orders created")
    error = rd.produce_one(librdkafka(up), "orders")
    assert error is not None and error.code() == ck.KafkaError.TOPIC_AUTHORIZATION_FAILED
    up.write_resources(cluster(up), topic("orders"), policy("Read", "Write"), billing)
    eventually(lambda: rd.produce_one(librdkafka(up), "orders") is None, within_s=60)
    up.write_resources(cluster(up), topic("orders"), billing)
    up.wait_for_line("AccessPolicy 'orders' is not in these files")
    assert up.stop() == 0


def test_a_mirror_logs_in_by_a_certificate_of_its_own(up: UpProcess) -> None:
    copy = resource("Cluster", "copy", replicas=1, listeners=[{"name": "plain", "port": up.port + 2}])
    mirror = resource(
        "Mirror",
        "west",
        source={"clusterRef": {"name": "demo"}},
        target={"clusterRef": {"name": "copy"}},
        topics=["orders*"],
    )
    up.write_resources(cluster(up), copy, topic("orders"), user(acls=RULES), mirror)
    up.start()
    eventually(lambda: (files_of(up, "mirror-west") / "user.key").exists(), within_s=60, message=lambda: str(up.lines))
    eventually(lambda: (files_of(up) / "librdkafka.properties").exists(), within_s=60, message=lambda: str(up.lines))
    eventually(lambda: rd.produce_one(librdkafka(up), "orders") is None, within_s=30, message=lambda: str(up.lines))
    read = ("consume", "orders", "--from", "beginning", "--exit", "--bootstrap", f"127.0.0.1:{up.port + 2}")
    eventually(lambda: "one" in up.run_ottla(*read).stdout, within_s=60, message=lambda: str(up.lines))
    reader = librdkafka(up, "mirror-west")
    refused = rd.produce_one(reader, "orders")
    assert refused is not None and refused.code() == ck.KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert not [it for it in up.lines if "Traceback" in it]
