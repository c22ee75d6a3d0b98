"""Settings of Kafka's that Ottla does not have.

Most change nothing that a user would miss. They are accepted with a note, so that a
server.properties written for Kafka works. A setting that would make a user rely on a protection or
feature that is missing is refused, unless it has Kafka's default. A name that ends in a dot stands
for all names that begin with it; the longest one counts.
"""

_ONE_THREAD = "one event loop and a small thread pool serve all requests"
_NO_QUORUM = "brokers are the controllers: the cluster is found through `controller.quorum.bootstrap.servers`"
_NO_ZOOKEEPER = "there is no ZooKeeper: the cluster is found through `controller.quorum.bootstrap.servers`"
_NO_REGISTER = "brokers elect the controller themselves; name them in `controller.quorum.bootstrap.servers` instead"
_NO_PURGATORY = "delayed requests are completed by what they wait for, and nothing has to be purged"
_NOT_THIS_SASL = "the implemented SASL mechanisms are PLAIN, SCRAM, and OAUTHBEARER with a JSON Web Key Set"
_NOT_JAVA_TLS = "TLS is OpenSSL's, not Java's"
_NO_TIERS = "tiered storage is not implemented"
_PROMETHEUS = "metrics are served for Prometheus on `http.listener`"
_ONE_VERSION = "records have one format, and brokers agree on versions by themselves"
_ONE_HANDOVER = "a stopping broker hands over its leaderships once, within a deadline"
_ONE_SECOND = "throttles are measured over one second"
_NO_JAVA = "Java classes cannot be loaded"

# Name or prefix → why it has no effect. Kafka reads these when a broker starts.
IGNORED_STATIC: dict[str, str] = {
    "process.roles": "every broker can be the controller",
    "controller.quorum.": _NO_QUORUM,
    "controller.listener.names": _NO_QUORUM + "; the listeners that it names are not opened",
    "controller.socket.timeout.ms": _NO_QUORUM,
    "metadata.log.dir": "the metadata log is in the first of `log.dirs`",
    "metadata.log.segment.ms": "the metadata log rolls by size",
    "metadata.max.": "snapshots keep the metadata log short",
    "queued.max.requests": "queues are bounded by bytes: `queued.max.request.bytes`",
    "num.replica.alter.log.dirs.threads": _ONE_THREAD,
    "log.dir.failure.timeout.ms": "a failed log directory takes its partitions offline at once",
    "log.flush.start.offset.checkpoint.interval.ms": (
        "written together with high watermarks: `replica.high.watermark.checkpoint.interval.ms`"
    ),
    "fetch.purgatory.purge.interval.requests": _NO_PURGATORY,
    "producer.purgatory.purge.interval.requests": _NO_PURGATORY,
    "delete.records.purgatory.purge.interval.requests": _NO_PURGATORY,
    "share.fetch.purgatory.purge.interval.requests": _NO_PURGATORY,
    "early.start.listeners": "all listeners open together",
    "socket.connection.setup.timeout.max.ms": "the timeout does not grow",
    "sasl.": _NOT_THIS_SASL,
    "security.providers": _NO_JAVA,
    "transaction.state.log.load.buffer.size": "transactions are read segment by segment",
    "group.coordinator.threads": _ONE_THREAD,
    "group.coordinator.append.linger.ms": "commits that arrive together are written together without waiting",
    "group.share.assignors": "share groups have one assignor, `simple`",
    "group.share.persister.class.name": _NO_JAVA,
    "share.coordinator.threads": _ONE_THREAD,
    "share.coordinator.append.linger.ms": "changes that arrive together are written together without waiting",
    "share.coordinator.load.buffer.size": "states are read segment by segment",
    "share.coordinator.state.topic.compression.codec": "states are written uncompressed",
    "share.coordinator.cold.partition.snapshot.interval.ms": (
        "old snapshots are renewed when the topic is pruned: `share.coordinator.state.topic.prune.interval.ms`"
    ),
    "offsets.load.buffer.size": "commits are read segment by segment",
    "offsets.topic.compression.codec": "commits are written uncompressed",
    "replication.quota.window.": _ONE_SECOND,
    "alter.log.dirs.replication.quota.window.": _ONE_SECOND,
    "remote.": _NO_TIERS,
    "metrics.": _PROMETHEUS,
    "kafka.metrics.": _PROMETHEUS,
}

# Those that Kafka can change while brokers run, or does not know. Setting them dynamically is
# accepted, too.
IGNORED_DYNAMIC: dict[str, str] = {
    "background.threads": _ONE_THREAD,
    "log.cleaner.io.buffer.": "the cleaner reads and writes whole batches",
    "log.cleaner.threads": "each log directory has one cleaner",
    "log.local.retention.": _NO_TIERS,
    "metric.reporters": _PROMETHEUS,
    "num.io.threads": _ONE_THREAD,
    "num.network.threads": _ONE_THREAD,
    "num.recovery.threads.per.data.dir": "recovery reads only what follows the recovery point",
    "num.replica.fetchers": "one connection fetches from each leader, and a second one topics with `flush.messages=1`",
    "principal.builder.class": _NO_JAVA,
    "remote.fetch.max.wait.ms": _NO_TIERS,
    "remote.list.offsets.request.timeout.ms": _NO_TIERS,
    "remote.log.index.file.cache.total.size.bytes": _NO_TIERS,
    "remote.log.manager.copier.thread.pool.size": _NO_TIERS,
    "remote.log.manager.copy.max.bytes.per.second": _NO_TIERS,
    "remote.log.manager.expiration.thread.pool.size": _NO_TIERS,
    "remote.log.manager.fetch.max.bytes.per.second": _NO_TIERS,
    "remote.log.reader.threads": _NO_TIERS,
    "sasl.kerberos.": _NOT_THIS_SASL,
    "sasl.login.refresh.": _NOT_THIS_SASL,
    "ssl.keymanager.algorithm": _NOT_JAVA_TLS,
    "ssl.keystore.password": "PEM has no password but that of the key: `ssl.key.password`",
    "ssl.protocol": "`ssl.enabled.protocols` is sufficient",
    "ssl.provider": _NOT_JAVA_TLS,
    "ssl.secure.random.implementation": _NOT_JAVA_TLS,
    "ssl.trustmanager.algorithm": _NOT_JAVA_TLS,
    "ssl.truststore.password": "certificates in PEM have no password",
    "controller.performance.": _NO_QUORUM,
    "zookeeper.": _NO_ZOOKEEPER,
    "broker.id.generation.enable": _NO_ZOOKEEPER,
    "reserved.broker.max.id": _NO_ZOOKEEPER,
    "log.initial.task.delay.ms": "log maintenance begins at start",
    "producer.id.expiration.check.interval.ms": "expired producer state is removed by log maintenance",
    "controlled.shutdown.max.retries": _ONE_HANDOVER,
    "controlled.shutdown.retry.backoff.ms": _ONE_HANDOVER,
    "leader.imbalance.per.broker.percentage": "the preferred leader of every partition is restored",
    "unclean.leader.election.interval.ms": "elections happen when brokers come and go",
    "server.max.startup.time.ms": "only the registration has a time limit: `initial.broker.registration.timeout.ms`",
    "password.encoder.": "it encodes secrets in ZooKeeper",
    "group.coordinator.new.enable": "there is one group coordinator, which has both protocols",
    "offsets.commit.required.acks": "a commit is always replicated before it is answered",
    "rlmm.config.": _NO_TIERS,
    "rsm.config.": _NO_TIERS,
    "auto.include.jmx.reporter": _PROMETHEUS,
    "inter.broker.protocol.version": _ONE_VERSION,
    "log.message.format.version": _ONE_VERSION,
    "log.message.downconversion.enable": _ONE_VERSION,
    "log.message.timestamp.difference.max.ms": (
        "Kafka replaced it by `log.message.timestamp.before.max.ms` and `log.message.timestamp.after.max.ms`"
    ),
    "unstable.api.versions.enable": "only stable versions are served",
    "unstable.feature.versions.enable": "only stable versions are served",
    "confluent.support.": "it belongs to another product",
}

# Name → (Kafka's default, which is accepted; why any other value is refused).
REFUSED: dict[str, tuple[str, str]] = {
    "alter.config.policy.class.name": ("", _NO_JAVA),
    "create.topic.policy.class.name": ("", _NO_JAVA),
    "client.quota.callback.class": ("", _NO_JAVA),
    "remote.log.storage.system.enable": ("false", _NO_TIERS),
    "register": ("", _NO_REGISTER),
    "register.lease.ms": (
        "",
        "brokers elect the controller themselves; set `controller.quorum.fetch.timeout.ms` instead",
    ),
    "ssl.cipher.suites": ("", "the ciphers are OpenSSL's default"),
    "ssl.engine.factory.class": ("", _NO_JAVA),
    "config.providers": ("", "`${env:NAME}` and `${directory:PATH:FILE}` work without it; others need Java classes"),
}


def why_ignored(name: str) -> str | None:
    """The reason for which a setting of Kafka's has no effect here; None for other names."""
    if (key := _find_pattern(name)) is not None:
        return IGNORED_DYNAMIC.get(key) or IGNORED_STATIC[key]
    if name.startswith("listener.name."):
        rest = name.split(".", 3)[-1]
        if rest.startswith("ssl."):
            return why_ignored(rest)
        return _NOT_THIS_SASL if rest.startswith("sasl.") or ".sasl." in rest else None
    return None


def is_ignored_static(name: str) -> bool:
    """True if Kafka would refuse to change an ignored setting while brokers run."""
    return _find_pattern(name) in IGNORED_STATIC


def _find_pattern(name: str) -> str | None:
    """The longest name or prefix in the tables that is, or begins, this name."""
    parts = name.split(".")
    prefixes = (".".join(parts[:length]) + "." for length in range(len(parts) - 1, 0, -1))
    return next((key for key in (name, *prefixes) if key in IGNORED_STATIC or key in IGNORED_DYNAMIC), None)
