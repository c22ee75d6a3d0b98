"""`ottla up` with a Cluster whose own certificate authority issues the certificates."""

import ssl
import time
from pathlib import Path

import pytest

from ottla_operator.certificates.internal_authority import maintain_certificates, read_authorities
from ottla_operator.certificates.x509 import issue_server_certificate
from ottla_operator.local.home import read_texts
from ottla_operator.local.internal_certificates import NAMES
from ottla_operator.plan.certificate_renewal import Validity
from ottla_operator.resources.cluster import Cluster
from tests.e2e.background_producer import produce_numbers
from tests.e2e.up_process import UpProcess
from tests.e2e.up_resources import Json, resource, topic
from tests.waiting import eventually

DAY = 86_400


def cluster(up: UpProcess) -> Json:
    listeners = [{"name": "safe", "port": up.port, "tls": True}]
    return resource("Cluster", "demo", replicas=1, listeners=listeners, tls={"issuer": "Internal"})


def authority_folder(up: UpProcess) -> Path:
    return up.folder / ".ottla" / "demo" / "authority"


def certificates_folder(up: UpProcess) -> Path:
    return up.folder / ".ottla" / "demo" / "certificates" / "internal"


def served_certificate(up: UpProcess, trusted: str) -> str:
    """The certificate that the broker presents to a client that verifies it by `trusted`."""
    return ssl.get_server_certificate(("127.0.0.1", up.port), ca_certs=trusted, timeout=10).strip()


def client_settings(trusted: Path) -> dict[str, str]:
    return {"security.protocol": "SSL", "ssl.ca.location": str(trusted)}


@pytest.mark.slow
def test_a_due_certificate_is_renewed_without_a_restart_while_a_producer_runs(up: UpProcess) -> None:
    up.write_resources(cluster(up), topic(partitions=2))
    up.start()
    up.wait_for_line("topic greetings created")
    trusted = certificates_folder(up) / "ca.crt"
    first, pid = served_certificate(up, str(trusted)), up.broker_pid()
    with produce_numbers(up.bootstrap, "greetings", 2, client_settings(trusted)) as acknowledged:
        authority_files = read_texts(authority_folder(up))
        (authority,) = read_authorities(Cluster.parse(cluster(up)), authority_files)
        began = time.time() - 61 * DAY
        old, key = issue_server_certificate(authority, NAMES, Validity(began, began + 90 * DAY))
        scratch = certificates_folder(up) / "old"
        scratch.write_text(key + old)
        scratch.replace(certificates_folder(up) / "keystore.pem")
        up.wait_for_line("two thirds of the previous one's lifetime are over")
        eventually(lambda: served_certificate(up, str(trusted)) not in (first, old.strip()), within_s=60)
        count = len(acknowledged)
        eventually(lambda: len(acknowledged) > count, message="the producer goes on")
    assert up.broker_pid() == pid
    assert up.stop() == 0
    output = "\n".join(up.lines)
    assert "Traceback" not in output
    assert "PRIVATE" not in output


def test_clients_that_trust_only_the_first_authority_connect_after_a_second_one_is_made(
    up: UpProcess, tmp_path: Path
) -> None:
    made = maintain_certificates(Cluster.parse(cluster(up)), {}, {}, NAMES, time.time() - 4 * 365 * DAY)
    authority_folder(up).mkdir(parents=True)
    for name, text in made.authority.items():
        (authority_folder(up) / name).write_text(text)
    known = tmp_path / "known.crt"
    known.write_text(made.brokers["ca.crt"])
    up.write_resources(cluster(up), topic(partitions=2))
    up.start()
    up.wait_for_line("authority 2 created, trusted until")
    up.wait_for_line("topic greetings created")
    assert served_certificate(up, str(known)) == served_certificate(up, str(certificates_folder(up) / "ca.crt"))
    assert (certificates_folder(up) / "ca.crt").read_text().count("BEGIN CERTIFICATE") == 2
    assert {it.stat().st_mode & 0o777 for it in certificates_folder(up).iterdir()} == {0o600}
    with produce_numbers(up.bootstrap, "greetings", 2, client_settings(known)) as acknowledged:
        eventually(lambda: acknowledged, message="a client that knows only the first authority")
    assert up.stop() == 0
