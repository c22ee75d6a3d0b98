"""Settings of a mirror, which is a config resource (`requests.config_resources`) for each link to
another cluster.

Names are those of Kafka's clients and of the Mirror resource, in Kafka's spelling; see
docs/mirroring.md.
"""

import re
from collections.abc import Callable

from ottla_broker.config.setting import MIRROR_SETTINGS, Section, Setting, UpdateMode
from ottla_broker.config.value_types import MAX_INT64, boolean, integer, list_of, long, one_of, parsed, secret, string
from ottla_broker.wire.client_security import MECHANISMS, PLAINTEXT, PROTOCOLS, ClientSecurity

REPLICATE, PAUSED, FAILED_OVER = "Replicate", "Paused", "FailedOver"
IDENTICAL, APPENDED = "Identical", "Appended"
STOP, RESYNC, TRUNCATE = "Stop", "Resync", "Truncate"


def _is_address(entry: str) -> bool:
    host, colon, port = entry.rpartition(":")
    return bool(colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536)


def _parse_prefix(text: str) -> str:
    text = text.strip()
    if not re.fullmatch(r"[a-zA-Z0-9._-]{0,100}", text):
        raise ValueError
    return text


_mirrors = Section("Mirrors of other clusters", MIRROR_SETTINGS, UpdateMode.PER_MIRROR)
_PATTERNS = "names, or patterns with * for any characters, separated by commas; a leading ! excludes"

# fmt: off
MIRROR_BOOTSTRAP_SERVERS = _mirrors.row(
    "bootstrap.servers", list_of(allowed="host:port pairs separated by commas", check=_is_address), "",
    "Bootstrap servers of the source cluster. Required. They must not be brokers of this cluster.")
MIRROR_TOPICS = _mirrors.row("topics", list_of(allowed=_PATTERNS), "",
    "Topics of the source to mirror. A pattern matches no topic whose name begins with `__`.")
MIRROR_PREFIX = _mirrors.row("prefix", parsed(_parse_prefix, "at most 100 letters, digits, '.', '_' and '-'"), "",
    "Prefix of the mirrored topics' names, such as `west.`. Empty: the source's names. It cannot change while there "
    "are mirrored topics.")
MIRROR_OFFSETS = _mirrors.row("offsets", one_of(IDENTICAL, APPENDED), IDENTICAL,
    "`Identical`: a mirrored topic is the same log and takes no other records. `Appended`: the source's committed "
    "records get new offsets, so that several sources, and producers of this cluster, may share a topic. It cannot "
    "change while there are mirrored topics.")
MIRROR_GROUPS = _mirrors.row("groups", list_of(allowed=_PATTERNS), "",
    "Consumer groups of the source whose committed offsets are copied every `metadata.max.age.ms`: only forward, and "
    "only while the group has no members in this cluster. None are copied with `offsets=Appended`.")
MIRROR_USERS = _mirrors.row("users", list_of(allowed=_PATTERNS), "",
    "Users of the source whose SCRAM credentials are copied every `metadata.max.age.ms`, so that they log in here with "
    "their passwords. Those that were set here stay as they are, and none are copied for super users of this cluster. "
    "Needs DESCRIBE on the source's cluster and DESCRIBE_TOKENS on its User resources; a source that is not Ottla does "
    "not give them.")
MIRROR_SECURITY_PROTOCOL = _mirrors.row("security.protocol", one_of(*PROTOCOLS), PLAINTEXT,
    "Security protocol of connections to the source.")
MIRROR_SSL_TRUSTSTORE_CERTIFICATES = _mirrors.row("ssl.truststore.certificates", string("certificates in PEM"), "",
    "Certificate authorities that sign the source's certificates. Empty: those that the broker's system trusts.")
MIRROR_SSL_KEYSTORE_CERTIFICATE_CHAIN = _mirrors.row(
    "ssl.keystore.certificate.chain", string("certificates in PEM"), "",
    "Certificate that brokers present to the source.")
MIRROR_SSL_KEYSTORE_KEY = _mirrors.row(
    "ssl.keystore.key", string("a private key in PEM, not encrypted"), "", "Private key of the certificate.",
    is_sensitive=True)
MIRROR_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM = _mirrors.row(
    "ssl.endpoint.identification.algorithm", one_of("https", ""), "https",
    "Whether the source's certificates must name the host that was connected to. Empty: any host.")
MIRROR_SASL_MECHANISM = _mirrors.row("sasl.mechanism", one_of(*MECHANISMS, ""), "",
    "SASL mechanism by which brokers authenticate. PLAIN sends the password, so it requires SSL.")
MIRROR_SASL_USERNAME = _mirrors.row("sasl.username", string(), "", "Name by which brokers authenticate.")
MIRROR_SASL_PASSWORD = _mirrors.row("sasl.password", secret(), "",
    "Password by which brokers authenticate. Stored in the metadata log in clear text, and never described.",
    is_sensitive=True)
MIRROR_CREDENTIALS_VERSION = _mirrors.row("credentials.version", string(), "",
    "Version of the credentials, for programs that set credentials and cannot read them back. When it changes, brokers "
    "reconnect.")
MIRROR_ROLE = _mirrors.row("role", one_of(REPLICATE, PAUSED, FAILED_OVER), REPLICATE,
    "`Replicate`: topics are copied and read-only. `Paused`: nothing is copied, and topics stay read-only. "
    "`FailedOver`: copying has ended, and topics are writable; `Replicate` after it needs `on.divergence=Truncate`.")
MIRROR_ON_SOURCE_TRUNCATION = _mirrors.row("on.source.truncation", one_of(STOP, RESYNC), STOP,
    "What happens when the source has lost copied records, or its topic was re-created. `Stop`: copying stops, and the "
    "status says why. `Resync`: the mirrored topic is deleted and copied again. With `offsets=Appended` its records "
    "stay, and copying continues where the source has diverged, or from the start of the re-created topic.")
MIRROR_ON_DIVERGENCE = _mirrors.row("on.divergence", one_of(STOP, TRUNCATE), STOP,
    "What happens when a topic of this cluster becomes the mirror of its own former mirror and has records that were "
    "never copied there. `Stop`: it stays as it is, read-only, and the status says how many. `Truncate`: they are "
    "written to a file beside the partition's log and truncated.")
MIRROR_SYNC_CONFIGS = _mirrors.row("sync.configs", boolean(), True,
    "Whether topic configs of the source are copied. Those of replication (`min.insync.replicas`, throttles, "
    "elections) never are.")
MIRROR_SYNC_ACLS = _mirrors.row("sync.acls", boolean(), False,
    "Whether access rules of the source for literal names of mirrored topics are created here, as by MirrorMaker 2: "
    "what allows WRITE is left out, and what allows ALL allows READ. Rules that were created so are removed when the "
    "source no longer has them. Needs DESCRIBE on the source's cluster.")
MIRROR_METADATA_MAX_AGE_MS = _mirrors.row("metadata.max.age.ms", long(at_least=100), 10_000,
    "Interval in milliseconds at which everything but records is copied: new topics and partitions, configs, committed "
    "offsets, credentials and access rules.")
MIRROR_THROTTLED_RATE = _mirrors.row("throttled.rate", long(at_least=1), MAX_INT64,
    "Maximum bytes per second, on average, that each broker fetches for this mirror.")
MIRROR_FETCH_MAX_WAIT_MS = _mirrors.row("fetch.max.wait.ms", integer(at_least=0), 500,
    "Maximum time in milliseconds that a fetch waits at the source for records.")
MIRROR_FETCH_MAX_BYTES = _mirrors.row("fetch.max.bytes", integer(at_least=1), 10 << 20,
    "Maximum bytes of all partitions in a fetch from one broker of the source.")
MIRROR_MAX_PARTITION_FETCH_BYTES = _mirrors.row("max.partition.fetch.bytes", integer(at_least=1), 1 << 20,
    "Maximum bytes of one partition in a fetch. A larger first batch is still fetched whole.")
# fmt: on


def source_security(value: Callable[[Setting[str]], str]) -> ClientSecurity:
    """TLS and login of brokers' connections to the source. `value` returns the mirror's value of a
    setting.
    """
    return ClientSecurity(
        value(MIRROR_SECURITY_PROTOCOL),
        value(MIRROR_SSL_TRUSTSTORE_CERTIFICATES),
        value(MIRROR_SSL_KEYSTORE_CERTIFICATE_CHAIN),
        value(MIRROR_SSL_KEYSTORE_KEY),
        value(MIRROR_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM) == "https",
        value(MIRROR_SASL_MECHANISM),
        value(MIRROR_SASL_USERNAME),
        value(MIRROR_SASL_PASSWORD),
    )
