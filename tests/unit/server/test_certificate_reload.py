"""Certificates of a listener that change while it serves."""

import asyncio
import shutil
import ssl
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from ottla_broker import listener_certificates
from ottla_broker.config import Config
from ottla_broker.config.listener_security import listener_tls
from tests.kube.certificates import (
    CertificateAuthority,
    create_certificate_authority,
    create_client_certificate,
    create_server_certificate,
)
from tests.unit.api.brokers import RawConnection, SmallBroker, create_server
from tests.unit.async_tests import wait_until
from tests.unit.server.certificates import client_context, connect_with_tls, start_both_listeners, tls_test
from tests.unit.server.connections import capture_log, request_api_versions


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    """A certificate authority for one test, which changes its files."""
    return create_certificate_authority(tmp_path / "authority", ["127.0.0.1"], ["localhost"])


@pytest.fixture
def keystore(authority: CertificateAuthority) -> Path:
    file = authority.folder / "keystore.pem"
    write_keystore(file, authority.server_certificate, authority.server_key)
    return file


@pytest.fixture(autouse=True)
def check_files_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_certificates, "CHECK_INTERVAL_S", 0.01)


def write_keystore(file: Path, certificate: Path, key: Path) -> None:
    replace_file(file, key.read_text() + certificate.read_text())


def replace_file(file: Path, text: str) -> None:
    """Replaces a file in one step, as Kubernetes replaces a mounted Secret."""
    new_file = file.with_suffix(".new")
    new_file.write_text(text)
    new_file.replace(file)


def serial_number(connection: RawConnection) -> str:
    return str(connection.writer.get_extra_info("peercert")["serialNumber"])


async def serial_number_of_new_connection(port: int, context: ssl.SSLContext) -> str:
    connection = await connect_with_tls(port, context)
    try:
        return serial_number(connection)
    finally:
        connection.close()


@tls_test()
async def test_new_connections_get_the_new_certificate_and_open_ones_stay(
    broker: SmallBroker, authority: CertificateAuthority
) -> None:
    file = Path(listener_tls(broker.config, "SSL").keystore_location)
    server = create_server(broker)
    _, port = await start_both_listeners(server)
    context = client_context(authority)
    open_connection = await connect_with_tls(port, context)
    before = serial_number(open_connection)
    logged = capture_log()
    write_keystore(file, *create_server_certificate(authority, "renewed", ["DNS:localhost"]))
    while (after := await serial_number_of_new_connection(port, context)) == before:
        pass
    assert (await request_api_versions(open_connection)).error_code is ErrorCode.none
    replace_file(file, "half of a fi")
    await wait_until(lambda: bool(logged()))
    assert logged() == [
        f"changed certificates of listener SSL are not used: ssl.keystore.location={file} has no certificate in PEM "
        "(-----BEGIN CERTIFICATE-----)"
    ]
    assert await serial_number_of_new_connection(port, context) == after
    open_connection.close()
    await server.close()


@tls_test(ssl_client_auth="required", ssl_truststore_location="THE_AUTHORITY")
async def test_authorities_of_clients_are_replaced(broker: SmallBroker, authority: CertificateAuthority) -> None:
    trusted = Path(listener_tls(broker.config, "SSL").truststore_location)
    server = create_server(broker)
    _, port = await start_both_listeners(server)
    others = create_certificate_authority(trusted.parent / "others", ["127.0.0.1"], ["localhost"])
    theirs = client_context(authority, create_client_certificate(others, "theirs"))

    async def is_accepted() -> bool:
        connection = await connect_with_tls(port, theirs)
        try:
            return (await request_api_versions(connection)).error_code is ErrorCode.none
        except (OSError, EOFError):
            return False
        finally:
            connection.close()

    assert not await is_accepted()
    replace_file(trusted, others.certificate.read_text())
    while not await is_accepted():
        pass
    await server.close()


@tls_test(ssl_client_auth="required", ssl_truststore_location="THE_AUTHORITY")
async def test_other_servers_follow_the_certificates_of_a_listener(
    broker: SmallBroker, authority: CertificateAuthority
) -> None:
    """Such as those on `http.listener` and `schema.registry.listener`."""
    tls = listener_tls(broker.config, "SSL")
    server = create_server(broker)
    await start_both_listeners(server)
    following = await serve_greeting(server.certificates.make_context("SSL"))
    open_to_all = await serve_greeting(server.certificates.make_context("SSL", client_auth="none"))
    theirs = client_context(authority, create_client_certificate(authority, "theirs"))
    anonymous = client_context(authority)
    others = create_certificate_authority(authority.folder / "others", ["127.0.0.1"], ["localhost"])
    of_others = client_context(authority, create_client_certificate(others, "others"))

    assert await serial_number_of_greeting_server(following, anonymous) is None
    before = await serial_number_of_greeting_server(following, theirs)
    assert before == await serial_number_of_greeting_server(open_to_all, anonymous) is not None
    renewed = create_server_certificate(authority, "renewed", ["IP:127.0.0.1"])
    write_keystore(Path(tls.keystore_location), *renewed)
    while (after := await serial_number_of_greeting_server(following, theirs)) == before:
        pass
    assert after == await serial_number_of_greeting_server(open_to_all, anonymous) is not None

    replace_file(Path(tls.truststore_location), others.certificate.read_text())
    while await serial_number_of_greeting_server(following, theirs):
        pass
    assert await serial_number_of_greeting_server(following, of_others)
    for each in (following, open_to_all):
        each.close()
    await server.close()


async def serve_greeting(tls: ssl.SSLContext) -> asyncio.Server:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    return await asyncio.start_server(greet, "127.0.0.1", 0, ssl=tls)


async def serial_number_of_greeting_server(server: asyncio.Server, context: ssl.SSLContext) -> str | None:
    """Serial number of the certificate of a server that greets the client; None if the server
    refuses the client. The client connects to an address, so its handshake has no server name
    (SNI).
    """
    port = server.sockets[0].getsockname()[1]
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        greeting = await reader.read()
    except OSError:
        return None
    certificate = writer.get_extra_info("peercert")
    writer.close()
    return str(certificate["serialNumber"]) if greeting else None


def test_settings_that_name_a_mounted_file_are_read_again(tmp_path: Path, authority: CertificateAuthority) -> None:
    """Kubernetes changes the files of a mounted Secret; a setting's value is the content of one."""
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    shutil.copy(authority.server_certificate, mounted / "tls.crt")
    shutil.copy(authority.server_key, mounted / "tls.key")
    file = tmp_path / "server.properties"
    file.write_text(
        f"log.dirs={tmp_path}/data\nlisteners=SSL://127.0.0.1:0\nssl.keystore.key=${{directory:{mounted}:tls.key}}\n"
        f"listener.name.ssl.ssl.keystore.certificate.chain=${{directory:{mounted}:tls.crt}}\n"
    )
    config = Config.load([file])
    before = listener_tls(config, "SSL").fingerprint()
    config.replace_secrets(config.reread_secrets("ssl."))
    assert listener_tls(config, "SSL").fingerprint() == before
    certificate, key = create_server_certificate(authority, "mounted-anew", ["DNS:localhost"])
    shutil.copy(certificate, mounted / "tls.crt")
    shutil.copy(key, mounted / "tls.key")
    config.replace_secrets(config.reread_secrets("ssl."))
    assert listener_tls(config, "SSL").fingerprint() != before
    assert listener_tls(config, "SSL").keystore_certificate_chain == certificate.read_text()
    listener_tls(config, "SSL").load()
