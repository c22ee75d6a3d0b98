"""Listeners, sockets, and what connections and requests may take."""

from ottla_broker.config.addresses import Listener, limits_by_address, listeners, parse_listeners, protocol_map
from ottla_broker.config.setting import Scope, Setting, Theme
from ottla_broker.config.value_types import MAX_INT32, integer, long, one_of, string

_theme = Theme("Listeners and connections")
_BUFFERS = "operating systems of today size buffers by what a connection needs"
_SEVERAL_BROKERS = "it counts among several brokers, which come with replication"

LISTENERS: Setting[tuple[Listener, ...]] = _theme.broker(
    "listeners",
    listeners(),
    parse_listeners("PLAINTEXT://127.0.0.1:9092"),
    "The addresses the broker listens on. An empty host means every interface; port 0 takes a free one.",
    importance="high",
    differs="Kafka listens on every interface; without authentication that is not for a default",
)
ADVERTISED_LISTENERS: Setting[tuple[Listener, ...]] = _theme.broker(
    "advertised.listeners",
    listeners(),
    (),
    "The addresses that clients and other brokers are told to use, by listener name. Not given: those of `listeners`, where an empty "
    "host becomes this machine's name and port 0 the port that was taken.",
    importance="high",
)
LISTENER_SECURITY_PROTOCOL_MAP: Setting[dict[str, str]] = _theme.broker(
    "listener.security.protocol.map",
    protocol_map(),
    {"SASL_SSL": "SASL_SSL", "PLAINTEXT": "PLAINTEXT", "SSL": "SSL", "SASL_PLAINTEXT": "SASL_PLAINTEXT"},
    "The security protocol of each listener name. PLAINTEXT and SSL can be served so far; a listener of another protocol is refused.",
    importance="low",
)
INTER_BROKER_LISTENER_NAME: Setting[str | None] = _theme.broker(
    "inter.broker.listener.name",
    string("the name of a listener", empty=False),
    None,
    "The listener that brokers use among themselves. Not given: the first whose protocol is `security.inter.broker.protocol`.",
)
SECURITY_INTER_BROKER_PROTOCOL = _theme.broker(
    "security.inter.broker.protocol",
    one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "PLAINTEXT",
    "The protocol by which the listener for other brokers is chosen when `inter.broker.listener.name` does not name it.",
)
SOCKET_SEND_BUFFER_BYTES = _theme.broker(
    "socket.send.buffer.bytes",
    integer(at_least=-1),
    -1,
    "Size of each socket's send buffer in bytes; -1 leaves it to the operating system.",
    importance="high",
    differs=_BUFFERS,
)
SOCKET_RECEIVE_BUFFER_BYTES = _theme.broker(
    "socket.receive.buffer.bytes",
    integer(at_least=-1),
    -1,
    "Size of each socket's receive buffer in bytes; -1 leaves it to the operating system.",
    importance="high",
    differs=_BUFFERS,
)
SOCKET_REQUEST_MAX_BYTES = _theme.broker(
    "socket.request.max.bytes",
    integer(at_least=1),
    104857600,
    "The largest request in bytes. A larger one costs its connection before any memory is taken for it.",
    importance="high",
)
SOCKET_LISTEN_BACKLOG_SIZE = _theme.broker(
    "socket.listen.backlog.size", integer(at_least=1), 50, "How many connections may wait to be accepted, per listener."
)
QUEUED_MAX_REQUEST_BYTES = _theme.broker(
    "queued.max.request.bytes",
    long(at_least=-1),
    256 << 20,
    "Bytes of requests and of answers not yet taken by clients that all connections together may hold; beyond it, nothing more is "
    "read from sockets until some are done. -1: no limit. At least `socket.request.max.bytes`.",
    differs="Kafka has no limit; a broker should never be stopped by clients that send and do not read",
)
CONNECTION_QUEUED_MAX_BYTES = _theme.broker(
    "connection.queued.max.bytes",
    integer(at_least=1),
    16 << 20,
    "Bytes of unanswered requests that one connection may hold before reading from it waits. One request may always be larger.",
    ours=True,
)
PRODUCE_SPIN_MAX_US = _theme.broker(
    "produce.spin.max.us",
    integer(at_least=0, at_most=10_000),
    200,
    "How many microseconds the broker may stay awake for the next record of a client that sends small ones one at a time and quickly, "
    "rather than be woken by it. 0: never, for brokers whose processor time is rationed. Never with a single processor.",
    ours=True,
)
CONNECTIONS_MAX_IDLE_MS = _theme.broker(
    "connections.max.idle.ms",
    long(),
    600000,
    "A connection that was silent for so many milliseconds is closed. -1 or less: never.",
)
MAX_CONNECTIONS = _theme.broker(
    "max.connections",
    integer(at_least=0),
    MAX_INT32,
    "How many connections the broker keeps at a time; one more is closed at once.",
    scope=Scope.CLUSTER,
)
MAX_CONNECTIONS_PER_IP = _theme.broker(
    "max.connections.per.ip",
    integer(at_least=0),
    MAX_INT32,
    "How many connections one address may have at a time.",
    scope=Scope.CLUSTER,
)
MAX_CONNECTIONS_PER_IP_OVERRIDES: Setting[dict[str, int]] = _theme.broker(
    "max.connections.per.ip.overrides",
    limits_by_address(),
    {},
    "Other limits than `max.connections.per.ip` for single addresses.",
    scope=Scope.CLUSTER,
)
MAX_CONNECTION_CREATION_RATE = _theme.broker(
    "max.connection.creation.rate",
    integer(at_least=0),
    MAX_INT32,
    "New connections a second that the broker accepts.",
    not_yet="connections are limited in number only",
    scope=Scope.CLUSTER,
)
SOCKET_CONNECTION_SETUP_TIMEOUT_MS = _theme.broker(
    "socket.connection.setup.timeout.ms",
    long(at_least=1),
    10000,
    "How long the broker waits for a connection to another broker to be made, in milliseconds.",
    not_yet=_SEVERAL_BROKERS,
)
REQUEST_TIMEOUT_MS = _theme.broker(
    "request.timeout.ms",
    integer(at_least=1),
    30000,
    "How long the broker waits for the answer of another broker, in milliseconds.",
    not_yet=_SEVERAL_BROKERS,
    importance="high",
)
FETCH_MAX_BYTES = _theme.broker(
    "fetch.max.bytes",
    integer(at_least=1024),
    57671680,
    "The most bytes that one fetch answers, whatever the client asks for. A first batch that is larger is returned all the same.",
)
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS = _theme.broker(
    "max.incremental.fetch.session.cache.slots",
    integer(at_least=0),
    1000,
    "How many incremental fetch sessions the broker remembers. 0: none, every fetch names all its partitions.",
)
MAX_REQUEST_PARTITION_SIZE_LIMIT = _theme.broker(
    "max.request.partition.size.limit",
    integer(at_least=1),
    2000,
    "The most partitions that one answer of DescribeTopicPartitions holds.",
)
