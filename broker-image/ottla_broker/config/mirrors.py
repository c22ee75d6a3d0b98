"""What a mirror is: settings of the config resource `mirror` (`api.config_resources`), one resource for each link to another cluster.

Names are those of Kafka's clients and of the Mirror resource, in Kafka's spelling. docs/mirroring.md tells how they are used.
"""

import re

from ottla_broker.config.setting import Setting, Theme
from ottla_broker.config.value_types import MAX_INT64, boolean, integer, list_of, long, one_of, parsed, string, verbatim
from ottla_broker.wire.client_security import MECHANISMS, PLAINTEXT, PROTOCOLS

Role = str
REPLICATE, PAUSED, FAILED_OVER = "Replicate", "Paused", "FailedOver"
IDENTICAL, APPENDED = "Identical", "Appended"
STOP, RESYNC, TRUNCATE = "Stop", "Resync", "Truncate"


def _is_address(entry: str) -> bool:
    host, colon, port = entry.rpartition(":")
    return bool(colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536)


def _prefix(text: str) -> str:
    text = text.strip()
    if not re.fullmatch(r"[a-zA-Z0-9._-]{0,100}", text):
        raise ValueError
    return text


_PATTERNS = "names, or patterns with * for any letters, separated by commas; a leading ! takes out again"

_mirrors = Theme("Mirrors of other clusters")

MIRROR_BOOTSTRAP_SERVERS: Setting[tuple[str, ...]] = _mirrors.mirror(
    "bootstrap.servers",
    list_of(allowed="host:port pairs separated by commas", check=_is_address),
    (),
    "Brokers of the source by which the others are found. A mirror needs this; it must not be one of this cluster's own.",
)
MIRROR_TOPICS: Setting[tuple[str, ...]] = _mirrors.mirror(
    "topics",
    list_of(allowed=_PATTERNS),
    (),
    "The source's topics that are mirrored. A pattern chooses no topic whose name begins with `__`.",
)
MIRROR_PREFIX: Setting[str] = _mirrors.mirror(
    "prefix",
    parsed(_prefix, "at most 100 letters, digits, '.', '_' and '-'"),
    "",
    "What goes before a topic's name to make that of its copy, such as `west.`; nothing: it has the same name. It stays as it is while there are copies.",
)
MIRROR_OFFSETS: Setting[str] = _mirrors.mirror(
    "offsets",
    one_of(IDENTICAL, APPENDED),
    IDENTICAL,
    "`Identical`: a copy is the same log, and takes no other records. `Appended`: the source's committed records get new offsets here, so that several "
    "sources, and producers of this cluster, may share a topic. It stays as it is while there are copies.",
)
MIRROR_GROUPS: Setting[tuple[str, ...]] = _mirrors.mirror(
    "groups",
    list_of(allowed=_PATTERNS),
    (),
    "The source's consumer groups whose committed offsets are copied, every `metadata.max.age.ms`: only forward, and only while nobody is in the "
    "group here.",
)
MIRROR_SECURITY_PROTOCOL: Setting[str] = _mirrors.mirror(
    "security.protocol",
    one_of(*PROTOCOLS),
    PLAINTEXT,
    "How brokers talk to the source: encrypted with SSL, logged in with SASL.",
)
MIRROR_SSL_TRUSTSTORE_CERTIFICATES: Setting[str] = _mirrors.mirror(
    "ssl.truststore.certificates",
    string("certificates in PEM"),
    "",
    "Authorities that may sign the source's certificates. Without it, those that the broker's system trusts.",
)
MIRROR_SSL_KEYSTORE_CERTIFICATE_CHAIN: Setting[str] = _mirrors.mirror(
    "ssl.keystore.certificate.chain",
    string("certificates in PEM"),
    "",
    "What brokers show the source when it wants certificates of its clients.",
)
MIRROR_SSL_KEYSTORE_KEY: Setting[str] = _mirrors.mirror(
    "ssl.keystore.key", string("a private key in PEM, not encrypted"), "", "The certificate's key.", sensitive=True
)
MIRROR_SSL_ENDPOINT_IDENTIFICATION: Setting[str] = _mirrors.mirror(
    "ssl.endpoint.identification.algorithm",
    one_of("https", ""),
    "https",
    "Whether the source's certificates must name the host that was asked for; empty: any host.",
)
MIRROR_SASL_MECHANISM: Setting[str] = _mirrors.mirror(
    "sasl.mechanism",
    one_of(*MECHANISMS, ""),
    "",
    "How brokers prove who they are. PLAIN sends the password: only over SSL.",
)
MIRROR_SASL_USERNAME: Setting[str] = _mirrors.mirror("sasl.username", string(), "", "Who brokers are at the source.")
MIRROR_SASL_PASSWORD: Setting[str] = _mirrors.mirror(
    "sasl.password",
    verbatim(),
    "",
    "The password. It is kept in the metadata log as it is, and shown to nobody who asks for configs.",
    sensitive=True,
)
MIRROR_CREDENTIALS_VERSION: Setting[str] = _mirrors.mirror(
    "credentials.version",
    string(),
    "",
    "Anything that tells which version of the credentials is set, for whoever sets them from elsewhere and cannot read them back. Connections are made "
    "anew when it changes.",
)
MIRROR_ROLE: Setting[Role] = _mirrors.mirror(
    "role",
    one_of(REPLICATE, PAUSED, FAILED_OVER),
    REPLICATE,
    "`Replicate`: topics are copied and take no other records. `Paused`: nothing is copied, and topics stay closed. `FailedOver`: copying has "
    "ended, and topics are open for writing; to set it back makes them copies again by `on.divergence=Truncate` only.",
)
MIRROR_ON_SOURCE_TRUNCATION = _mirrors.mirror(
    "on.source.truncation",
    one_of(STOP, RESYNC),
    STOP,
    "When the source has lost records that were copied, or its topic was made anew. `Stop`: the copy stands still as it is, and says why. "
    "`Resync`: the copy is deleted, and made anew from what the source has.",
)
MIRROR_ON_DIVERGENCE = _mirrors.mirror(
    "on.divergence",
    one_of(STOP, TRUNCATE),
    STOP,
    "When a topic of this cluster becomes a copy of what was its own copy, and has records that never came there. `Stop`: it stays as it is, closed, "
    "and says how many. `Truncate`: they are written to a file beside the partition's log, and cut off; and a copy that has failed over becomes one again "
    "in the same way when `role` is set back.",
)
MIRROR_SYNC_CONFIGS = _mirrors.mirror(
    "sync.configs",
    boolean(),
    True,
    "Whether the source's topic settings are kept in step; those of replication (`min.insync.replicas`, throttles, elections) are never copied.",
)
MIRROR_METADATA_MAX_AGE_MS = _mirrors.mirror(
    "metadata.max.age.ms",
    long(at_least=100),
    10_000,
    "How often the source is asked for new topics, partitions and settings, in milliseconds.",
)
MIRROR_THROTTLED_RATE = _mirrors.mirror(
    "throttled.rate",
    long(at_least=1),
    MAX_INT64,
    "The most that each broker fetches for this mirror, in bytes a second on average: what a fetch brought is paid for by waiting before the next.",
)
MIRROR_FETCH_MAX_WAIT_MS = _mirrors.mirror(
    "fetch.max.wait.ms",
    integer(at_least=0),
    500,
    "The longest that a fetch waits at the source for records, in milliseconds.",
)
MIRROR_FETCH_MAX_BYTES = _mirrors.mirror(
    "fetch.max.bytes",
    integer(at_least=1),
    10 << 20,
    "Bytes of all partitions that are asked of one broker of the source at a time.",
)
MIRROR_MAX_PARTITION_FETCH_BYTES = _mirrors.mirror(
    "max.partition.fetch.bytes",
    integer(at_least=1),
    1 << 20,
    "Bytes of one partition that are asked for at a time. A first batch that is larger comes all the same.",
)
