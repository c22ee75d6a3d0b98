"""Settings of Kafka's that have no place in this broker.

Most change nothing that a user would miss and are accepted with a note, so that a server.properties written for Kafka works. What would
leave someone believing in a protection or a feature that is not there is refused with the reason, unless it has Kafka's default.
A name that ends in a dot stands for everything that begins with it.
"""

_ONE_THREAD = "one event loop and a small pool for blocking calls serve all requests"
_NO_QUORUM = "there is no controller quorum: the cluster is found through `register`"
_NO_ZOOKEEPER = "there is no ZooKeeper: the cluster is found through `register`"
_NO_TRANSACTIONS = "transactions are not coordinated yet"
_NO_PURGATORY = "waiting requests are woken by what they wait for, and nothing has to be purged"
_NO_SASL = "no listener speaks SASL yet (and one that should is refused)"
_JAVAS_TLS = "TLS is OpenSSL's, not Java's"
_NO_SHARE = "share groups are not served yet"
_NO_KIP848 = "only the classic group protocol is spoken so far"
_NO_STREAMS = "streams groups are not served yet"
_NO_TIERS = "there is no tiered storage yet"
_NO_QUOTAS = "client quotas are not served yet"
_PROMETHEUS = "metrics are served for Prometheus on `http.listener`"
_ONE_VERSION = "records have one format, and brokers agree on versions by themselves"

# name or prefix → why it has no effect
NOTED: dict[str, str] = {
    "process.roles": "every broker can be the controller",
    "controller.quorum.": _NO_QUORUM,
    "controller.listener.names": _NO_QUORUM + "; the listeners it names are left out",
    "controller.socket.timeout.ms": _NO_QUORUM,
    "controller.quota.window.": _NO_QUOTAS,
    "controller.performance.": _NO_QUORUM,
    "metadata.log.dir": "the metadata log lies in the first of `log.dirs`",
    "metadata.log.segment.ms": "the metadata log begins segments by size",
    "metadata.max.": "the metadata log is kept short by its snapshots",
    "zookeeper.": _NO_ZOOKEEPER,
    "broker.id.generation.enable": _NO_ZOOKEEPER,
    "reserved.broker.max.id": _NO_ZOOKEEPER,
    "num.network.threads": _ONE_THREAD,
    "num.io.threads": _ONE_THREAD,
    "background.threads": _ONE_THREAD,
    "queued.max.requests": "queues are bounded by bytes: `queued.max.request.bytes`",
    "num.recovery.threads.per.data.dir": "recovery reads only what follows the recovery point",
    "num.replica.fetchers": "one connection fetches from each leader",
    "num.replica.alter.log.dirs.threads": _ONE_THREAD,
    "log.cleaner.threads": "one pass of compaction runs at a time",
    "log.cleaner.io.buffer.": "compaction reads and writes whole batches",
    "log.dir.failure.timeout.ms": "a folder that fails takes its partitions offline at once",
    "log.flush.start.offset.checkpoint.interval.ms": "written together with recovery points: `log.flush.offset.checkpoint.interval.ms`",
    "log.initial.task.delay.ms": "logs are looked after from the start",
    "fetch.purgatory.purge.interval.requests": _NO_PURGATORY,
    "producer.purgatory.purge.interval.requests": _NO_PURGATORY,
    "delete.records.purgatory.purge.interval.requests": _NO_PURGATORY,
    "share.fetch.purgatory.purge.interval.requests": _NO_PURGATORY,
    "producer.id.expiration.check.interval.ms": "they are looked for with everything else that expires",
    "controlled.shutdown.max.retries": "a broker that stops hands over once, within a deadline",
    "controlled.shutdown.retry.backoff.ms": "a broker that stops hands over once, within a deadline",
    "leader.imbalance.per.broker.percentage": "every partition that is away from its first replica counts",
    "unclean.leader.election.interval.ms": "elections happen when brokers come and go",
    "early.start.listeners": "all listeners open together",
    "server.max.startup.time.ms": "nothing in the start can wait without end",
    "connection.failed.authentication.delay.ms": _NO_SASL,
    "connections.max.reauth.ms": _NO_SASL,
    "socket.connection.setup.timeout.max.ms": "the timeout does not grow: `socket.connection.setup.timeout.ms`",
    "sasl.": _NO_SASL,
    "ssl.truststore.password": "certificates in PEM have no password",
    "ssl.keystore.password": "PEM has no password but that of the key: `ssl.key.password`",
    "ssl.allow.": "certificates are read at start only",
    "ssl.endpoint.identification.algorithm": "brokers speak to each other without TLS so far",
    "ssl.keymanager.algorithm": _JAVAS_TLS,
    "ssl.protocol": "`ssl.enabled.protocols` says all",
    "ssl.provider": _JAVAS_TLS,
    "ssl.secure.random.implementation": _JAVAS_TLS,
    "ssl.trustmanager.algorithm": _JAVAS_TLS,
    "principal.builder.class": _NO_SASL,
    "security.providers": _NO_SASL,
    "delegation.token.": _NO_SASL,
    "password.encoder.": _NO_SASL,
    "super.users": "there are no access rules yet, so nobody needs to be above them",
    "transaction.": _NO_TRANSACTIONS,
    "transactional.id.expiration.ms": _NO_TRANSACTIONS,
    "add.partitions.to.txn.retry.backoff.": _NO_TRANSACTIONS,
    "group.coordinator.threads": _ONE_THREAD,
    "group.coordinator.append.linger.ms": "commits that arrive together are written together without waiting",
    "group.coordinator.new.enable": _NO_KIP848,
    "group.consumer.": _NO_KIP848,
    "group.share.": _NO_SHARE,
    "group.streams.": _NO_STREAMS,
    "share.coordinator.": _NO_SHARE,
    "offsets.load.buffer.size": "commits are read as they lie in segments",
    "offsets.topic.compression.codec": "commits are written uncompressed",
    "offsets.commit.required.acks": "a commit is always replicated before it is answered",
    "quota.window.": _NO_QUOTAS,
    "replication.quota.window.": "throttles are kept over one second",
    "alter.log.dirs.replication.quota.window.": "throttles are kept over one second",
    "remote.": _NO_TIERS,
    "log.local.retention.": _NO_TIERS,
    "rlmm.config.": _NO_TIERS,
    "rsm.config.": _NO_TIERS,
    "metric.reporters": _PROMETHEUS,
    "metrics.": _PROMETHEUS,
    "kafka.metrics.": _PROMETHEUS,
    "auto.include.jmx.reporter": _PROMETHEUS,
    "telemetry.max.bytes": "clients' own metrics are not collected yet",
    "inter.broker.protocol.version": _ONE_VERSION,
    "log.message.format.version": _ONE_VERSION,
    "log.message.downconversion.enable": _ONE_VERSION,
    "log.message.timestamp.difference.max.ms": "it was replaced by `log.message.timestamp.before.max.ms` and `…after.max.ms`",
    "unstable.api.versions.enable": "only stable versions are served",
    "unstable.feature.versions.enable": "only stable versions are served",
    "confluent.support.": "it belongs to another product",
}

# name → (Kafka's default, which is harmless; why another value is refused)
REFUSED: dict[str, tuple[str, str]] = {
    "authorizer.class.name": ("", "access rules are not enforced yet, and a broker must not seem to"),
    "alter.config.policy.class.name": (
        "",
        "Java classes cannot be loaded, and a policy that is not asked is worse than none",
    ),
    "create.topic.policy.class.name": (
        "",
        "Java classes cannot be loaded, and a policy that is not asked is worse than none",
    ),
    "client.quota.callback.class": ("", "Java classes cannot be loaded"),
    "remote.log.storage.system.enable": ("false", _NO_TIERS),
    "ssl.cipher.suites": ("", "ciphers are those that OpenSSL holds for safe"),
    "ssl.engine.factory.class": ("", "Java classes cannot be loaded"),
    "ssl.principal.mapping.rules": ("DEFAULT", "principals are whole subjects of certificates"),
    "config.providers": (
        "",
        "`${env:NAME}` and `${directory:PATH:FILE}` are understood without it; others would be Java classes",
    ),
}


def why_ignored(name: str) -> str | None:
    """The reason for which a setting of Kafka's is accepted without effect; None when it is not such a one."""
    if name in NOTED:
        return NOTED[name]
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        reason = NOTED.get(".".join(parts[:length]) + ".")
        if reason is not None:
            return reason
    if name.startswith("listener.name."):
        rest = name.split(".", 3)[-1]
        if rest.startswith("ssl."):
            return why_ignored(rest)
        return _NO_SASL if rest.startswith("sasl.") or ".sasl." in rest else None
    return None
