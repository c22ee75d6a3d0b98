"""Settings of one broker: its identity and data, its quorum, its listeners and connections."""

from ottla_broker.config.addresses import (
    Listener,
    host_and_port_list,
    http_address,
    limits_by_address,
    listeners,
    protocol_map,
)
from ottla_broker.config.setting import BROKER_SETTINGS, Section, Setting, UpdateMode
from ottla_broker.config.value_types import (
    MAX_INT32,
    boolean,
    integer,
    integer_of,
    list_of,
    long,
    one_of,
    string,
)
from ottla_broker.wire.client_security import PROTOCOLS

DYNAMIC = UpdateMode.CLUSTER_WIDE

# fmt: off
_identity = Section("Broker and data", BROKER_SETTINGS)

NODE_ID = _identity.row("node.id", integer(at_least=0), 1,
    "Id of the broker, unique in its cluster and never reused. `broker.id` is accepted as an alias.",
    differs="Kafka has no default; a single broker should need no setting but its data directory")
BROKER_RACK = _identity.row("broker.rack", string("a name", empty=False), None,
    "Failure domain (rack, zone) of the broker. The controller spreads the replicas of a partition over racks, and "
    "consumers that send a rack id can read from a replica in the same rack.")
BROKER_NODE = _identity.row("broker.node", string("a name", empty=False), None,
    "Machine or Kubernetes node of the broker: a failure domain inside of `broker.rack`. The controller puts no two "
    "replicas of a partition on one node while a node without one is free. Not set: the environment variable "
    "`BROKER_NODE`, which the operator sets to the node of the pod, or else the name of the host.", is_ottla_only=True)
LOG_DIRS = _identity.row("log.dirs", list_of(allowed="directories separated by commas", check=bool), "",
    "Directories that hold partitions. A new partition goes to the directory with the fewest. Falls back to `log.dir`; "
    "one of the two is required.")
LOG_DIR = _identity.row("log.dir", string("a directory", empty=False), None,
    "Directory that holds partitions. Read only if `log.dirs` is not set.",
    differs="Kafka's default lies below /tmp, which loses data on reboot; Ottla requires a directory")
HTTP_LISTENER = _identity.row("http.listener", http_address(), None,
    "Address that serves `/livez`, `/readyz` and `/metrics`, and the console where `console.enable` is true. Not set: "
    "no HTTP server.", is_ottla_only=True)
HTTP_SECURITY_LISTENER = _identity.row("http.security.listener", string("a listener's name", empty=False), None,
    "Name of a listener with TLS, whose certificates `http.listener` uses too. HTTP clients need no certificate of "
    "their own. Users of the console may log in with one if that listener requests them. Not set: `http.listener` "
    "has no TLS.", is_ottla_only=True)

_quorum = Section("Metadata quorum", BROKER_SETTINGS)

CONTROLLER_QUORUM_BOOTSTRAP_SERVERS = _quorum.row("controller.quorum.bootstrap.servers", host_and_port_list(), "",
    "Addresses of the cluster's brokers at their inter-broker listener. A broker finds the leader of the metadata log "
    "through them. Voters also request votes there, because the addresses in the metadata may be out of date. Not "
    "set: a broker with an empty disk founds a new cluster.")
CLUSTER_FOUND = _quorum.row("cluster.found", boolean(), False,
    "Whether a broker with an empty disk founds a cluster if none of `controller.quorum.bootstrap.servers` has one. "
    "Set it for one broker, once. A broker whose disk has a cluster ignores it.", is_ottla_only=True)
CONTROLLER_QUORUM_VOTER_COUNT = _quorum.row("controller.quorum.voter.count", integer_of(1, 3, 5), 3,
    "Number of voters of the metadata log that its leader keeps, if there are as many brokers; with fewer, the next "
    "smaller of 3 and 1.", is_ottla_only=True)
CONTROLLER_QUORUM_AUTO_JOIN_ENABLE = _quorum.row("controller.quorum.auto.join.enable", boolean(), True,
    "Whether the leader of the metadata log may make this broker a voter by itself. `kafka-metadata-quorum.sh "
    "remove-controller` sets it to false for the broker that it removes, and `add-controller` removes that value. Only "
    "the value that is set dynamically for one broker counts.", UpdateMode.PER_BROKER,
    differs="Kafka's default is false; here every broker is a controller, and lost voters are replaced automatically")
CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS = _quorum.row(
    "controller.quorum.election.timeout.ms", integer(at_least=10), 1000,
    "Time in milliseconds that a voter without a leader waits for one, or a candidate for votes. Each time is random, "
    "between this value and twice the value.")
CONTROLLER_QUORUM_FETCH_TIMEOUT_MS = _quorum.row("controller.quorum.fetch.timeout.ms", integer(at_least=10), 2000,
    "Time in milliseconds without a response of the leader after which voters elect another one. A leader whose port "
    "refuses connections is replaced at once. A leader that no majority has fetched from for one and a half times as "
    "long resigns.")
CONTROLLER_QUORUM_ELECTION_BACKOFF_MAX_MS = _quorum.row(
    "controller.quorum.election.backoff.max.ms", integer(at_least=0), 1000,
    "Longest pause in milliseconds between elections that no voter wins.")

_network = Section("Listeners and connections", BROKER_SETTINGS)

LISTENERS = _network.row("listeners", listeners(), "PLAINTEXT://127.0.0.1:9092",
    "Addresses that the broker listens on. An empty host means every interface; port 0 means any free port.",
    differs="Kafka listens on every interface, which is no safe default without authentication")
ADVERTISED_LISTENERS: Setting[tuple[Listener, ...]] = _network.row("advertised.listeners", listeners(), (),
    "Addresses that clients and other brokers connect to, by listener name. Not set: those of `listeners`, with this "
    "machine's name for an empty host and the bound port for port 0.")
LISTENER_SECURITY_PROTOCOL_MAP = _network.row("listener.security.protocol.map", protocol_map(),
    "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "Security protocol of each listener name.")
INTER_BROKER_LISTENER_NAME = _network.row(
    "inter.broker.listener.name", string("the name of a listener", empty=False), None,
    "Listener that brokers use among themselves. Not set: the first with the protocol "
    "`security.inter.broker.protocol`.")
SECURITY_INTER_BROKER_PROTOCOL = _network.row("security.inter.broker.protocol", one_of(*PROTOCOLS), "PLAINTEXT",
    "Protocol that selects the inter-broker listener if `inter.broker.listener.name` is not set.")
SOCKET_SEND_BUFFER_BYTES = _network.row("socket.send.buffer.bytes", integer(at_least=-1), -1,
    "Size of each socket's send buffer (SO_SNDBUF) in bytes. -1: the operating system's default.",
    differs="operating systems size a buffer by what the connection needs")
SOCKET_RECEIVE_BUFFER_BYTES = _network.row("socket.receive.buffer.bytes", integer(at_least=-1), 102400,
    "Size of each socket's receive buffer (SO_RCVBUF) in bytes. -1: the operating system's default. A small one lets "
    "the records that a busy broker has not received yet wait in their producer, which sends them in larger batches. "
    "Over long distances a larger one is faster. Not set, on Linux: a connection has 2 MiB, or as much as "
    "`net.core.rmem_max` allows, from the 64th consecutive request of 512 KiB or more until the first smaller one.")
SOCKET_REQUEST_MAX_BYTES = _network.row("socket.request.max.bytes", integer(at_least=1), 104857600,
    "Maximum size of a request in bytes. The broker closes the connection of a larger one before allocating memory.")
SOCKET_LISTEN_BACKLOG_SIZE = _network.row("socket.listen.backlog.size", integer(at_least=1), 50,
    "Maximum number of connections that wait to be accepted, per listener.")
QUEUED_MAX_REQUEST_BYTES = _network.row("queued.max.request.bytes", long(at_least=-1), 256 << 20,
    "Maximum bytes of requests above 128 KiB, and of responses not yet read by clients, over all connections: half for "
    "each. At the limit further such requests are not received, and consumers' fetches not served, until memory is "
    "free. -1: no limit. At least `socket.request.max.bytes`.",
    differs="Kafka has no limit; clients that send and do not read must not exhaust a broker's memory")
CONNECTION_QUEUED_MAX_BYTES = _network.row("connection.queued.max.bytes", integer(at_least=1), 16 << 20,
    "Maximum bytes of queued requests per connection. At the limit the broker pauses reading from the connection. A "
    "single request may be larger.", is_ottla_only=True)
PRODUCE_SPIN_MAX_US = _network.row("produce.spin.max.us", integer(at_least=0, at_most=10_000), 200,
    "Maximum time in microseconds that the broker polls sockets instead of sleeping, after a response to a client that "
    "sends small produce requests one at a time in quick succession. 0: never, for brokers with rationed processor "
    "time. A machine with one processor never polls.", is_ottla_only=True)
CONNECTIONS_MAX_IDLE_MS = _network.row("connections.max.idle.ms", long(), 600000,
    "Time in milliseconds after which the broker closes an idle connection. 0 or less: never.")
MAX_CONNECTIONS = _network.row("max.connections", integer(at_least=0), MAX_INT32,
    "Maximum number of open connections. At the limit the broker closes new connections at once. If there are other "
    "listeners than the inter-broker listener, it accepts those of brokers, and closes the client connection that has "
    "been idle for longest. "
    "`listener.name.NAME.max.connections` limits one listener.", DYNAMIC)
MAX_CONNECTIONS_PER_IP = _network.row("max.connections.per.ip", integer(at_least=0), MAX_INT32,
    "Maximum number of open connections from one IP address.", DYNAMIC)
MAX_CONNECTIONS_PER_IP_OVERRIDES = _network.row("max.connections.per.ip.overrides", limits_by_address(), "",
    "Limits for single IP addresses, in place of `max.connections.per.ip`.", DYNAMIC)
MAX_CONNECTION_CREATION_RATE = _network.row("max.connection.creation.rate", integer(at_least=0), MAX_INT32,
    "Maximum number of connections accepted per second. Further ones wait for up to 10 seconds, and those that would "
    "wait longer are closed. After an idle time the broker accepts the connections of up to ten seconds at once. "
    "Connections of brokers count but do not wait, if there are other listeners than the inter-broker listener. "
    "`listener.name.NAME.max.connection.creation.rate` limits one listener.", DYNAMIC)
_network.row("socket.connection.setup.timeout.ms", long(at_least=1), 10000,
    "Timeout in milliseconds for establishing a connection to another broker.",
    no_effect="connections to other brokers have fixed timeouts")
_network.row("request.timeout.ms", integer(at_least=1), 30000,
    "Timeout in milliseconds for a response from another broker.",
    no_effect="each kind of request to another broker has a timeout of its own")
FETCH_MAX_BYTES = _network.row("fetch.max.bytes", integer(at_least=1024), 57671680,
    "Maximum bytes of one fetch response, whatever the client requests. A larger first batch is still returned whole.")
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS = _network.row(
    "max.incremental.fetch.session.cache.slots", integer(at_least=0), 1000,
    "Maximum number of incremental fetch sessions that the broker keeps. 0: none, every fetch names all its "
    "partitions.")
MAX_REQUEST_PARTITION_SIZE_LIMIT = _network.row("max.request.partition.size.limit", integer(at_least=1), 2000,
    "Maximum number of partitions in one DescribeTopicPartitions response.")
TELEMETRY_MAX_BYTES = _network.row("telemetry.max.bytes", integer(at_least=1), 1048576,
    "Maximum bytes of the metrics in one push of a client (KIP-714), before and after decompression.")

_quotas = Section("Client quotas", BROKER_SETTINGS)
_BURST = "A client that was idle may use what its quota allows in all of them at once."

QUOTA_WINDOW_NUM = _quotas.row("quota.window.num", integer(at_least=1), 11,
    "Number of windows over which rates of clients are measured. A client that was idle may use what its quota allows "
    "in all but one of them at once.")
QUOTA_WINDOW_SIZE_SECONDS = _quotas.row("quota.window.size.seconds", integer(at_least=1), 1,
    "Length in seconds of each window, and the longest time for which `request_percentage` throttles at once.")
CONTROLLER_QUOTA_WINDOW_NUM = _quotas.row("controller.quota.window.num", integer(at_least=1), 11,
    f"Number of windows of `controller_mutation_rate`. {_BURST}")
CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS = _quotas.row(
    "controller.quota.window.size.seconds", integer(at_least=1), 1,
    "Length in seconds of each window of `controller_mutation_rate`.")
