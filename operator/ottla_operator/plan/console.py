"""The brokers' settings of the console, and the files of its Secrets. Pure.

Brokers read the client's secret when they start: a changed one is used from the next restart on.
They read ca.crt again for each request to the provider.
"""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Final, NamedTuple

from ottla_operator.plan.source_credentials import ObservedSecret, read_secret_value
from ottla_operator.plan.user_secret import check_password
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.cluster_console import OidcLogin

CLIENT_SECRET: Final = "client-secret"
AUTHORITIES: Final = "ca.crt"
"""Names of the files."""
ENABLE_SETTING: Final = "console.enable"
_OIDC_FIELD: Final = "spec.console.oidc"


def find_oidc(cluster: Cluster) -> OidcLogin | None:
    console = cluster.spec.console
    return None if console is None else console.oidc


def console_settings(cluster: Cluster, folder: PurePath) -> dict[str, str]:
    """Empty for a Cluster without `spec.console`. `folder`: where brokers find the files."""
    console = cluster.spec.console
    if console is None:
        return {}
    settings = {ENABLE_SETTING: "false" if console.enabled is False else "true"}
    if (oidc := console.oidc) is None:
        return settings
    oidc_settings = {
        "console.oidc.issuer": oidc.issuer,
        "console.oidc.client.id": oidc.client_id,
        "console.oidc.client.secret": f"${{directory:{folder}:{CLIENT_SECRET}}}" if oidc.client_secret_from else None,
        "console.oidc.truststore.location": str(folder / AUTHORITIES) if oidc.ca_secret_ref else None,
        "console.oidc.scope": oidc.scope,
        "console.oidc.redirect.uri": oidc.redirect_uri,
        "sasl.oauthbearer.sub.claim.name": oidc.user_claim,
    }
    return settings | {name: value for name, value in oidc_settings.items() if value is not None}


class SecretFile(NamedTuple):
    """A file whose content is a value of a Secret. `field`: of `spec.console.oidc`."""

    field: str
    secret: str
    key: str
    name: str


def secret_files(cluster: Cluster) -> list[SecretFile]:
    if (oidc := find_oidc(cluster)) is None:
        return []
    files = []
    if (secret := oidc.client_secret_from) is not None:
        files.append(SecretFile("clientSecretFrom", secret.name, secret.key, CLIENT_SECRET))
    if (authorities := oidc.ca_secret_ref) is not None:
        files.append(SecretFile("caSecretRef", authorities.name, AUTHORITIES, AUTHORITIES))
    return files


def secret_names(cluster: Cluster) -> tuple[str, ...]:
    """The Secrets that `console_files` needs."""
    return tuple(dict.fromkeys(it.secret for it in secret_files(cluster)))


def console_files(cluster: Cluster, secrets: Mapping[str, ObservedSecret]) -> dict[str, str]:
    """Content by file. `secrets`: those that exist, by name. Raises SecretUnusable."""
    contents = {}
    for file in secret_files(cluster):
        where = f"{_OIDC_FIELD}.{file.field}"
        value = read_secret_value(secrets, file.secret, file.key, where)
        if file.name == CLIENT_SECRET:
            check_password(value, f"{where}: {file.key} of Secret {file.secret}")
        contents[file.name] = value
    return contents
