"""The authorizer, the quotas and the audit log of a broker, as its settings choose them."""

import asyncio
import os
from collections.abc import Callable
from functools import partial

from ottla_broker.config import (
    ALLOW_EVERYONE_IF_NO_ACL_FOUND,
    AUDIT_LOG_PATH,
    AUDIT_TOPIC,
    AUTHORIZER_CLASS_NAME,
    CONTROLLER_QUOTA_WINDOW_NUM,
    CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS,
    QUOTA_WINDOW_NUM,
    QUOTA_WINDOW_SIZE_SECONDS,
    RESTRICTED_SUPER_USERS,
    SUPER_USERS,
    Config,
)
from ottla_broker.coordination.audit_topic import TopicAudit
from ottla_broker.runtime import Runtime
from ottla_broker.security.audit import AuditLog, BothAudits, BrokerLogAudit, FileAudit
from ottla_broker.security.client_quota_manager import ClientQuotaManager, QuotaWindows
from ottla_broker.security.standard_authorizer import StandardAuthorizer


def build_acl_authorizer(config: Config) -> StandardAuthorizer | None:
    """None without `authorizer.class.name`."""
    if not config(AUTHORIZER_CLASS_NAME):
        return None
    return StandardAuthorizer(
        config(SUPER_USERS),
        config(RESTRICTED_SUPER_USERS),
        allow_if_no_acl=config(ALLOW_EVERYONE_IF_NO_ACL_FOUND),
    )


def build_client_quotas(config: Config) -> ClientQuotaManager:
    windows = QuotaWindows(
        config(QUOTA_WINDOW_NUM),
        config(QUOTA_WINDOW_SIZE_SECONDS),
        config(CONTROLLER_QUOTA_WINDOW_NUM),
        config(CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS),
    )
    return ClientQuotaManager(windows, asyncio.get_running_loop().time)


def build_audit_log(config: Config, runtime: Runtime, build_topic_audit: Callable[[str], TopicAudit]) -> AuditLog:
    """The file `audit.log.path`, or the broker's log if that is not set, and with `audit.topic` the
    topic of this name too. `build_topic_audit`: creates an audit log in a topic.
    """
    audit_log = _build_local_audit_log(config, runtime)
    topic = config(AUDIT_TOPIC)
    return audit_log if topic is None else BothAudits(audit_log, build_topic_audit(topic))


def _build_local_audit_log(config: Config, runtime: Runtime) -> AuditLog:
    if (path := config(AUDIT_LOG_PATH)) is None:
        return BrokerLogAudit(asyncio.get_running_loop().time)

    def append(lines: bytes) -> None:
        with open(path, "ab", opener=partial(os.open, mode=0o640)) as file:
            file.write(lines)

    return FileAudit(lambda lines: runtime.run_in_thread(append, lines))
