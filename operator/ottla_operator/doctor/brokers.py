"""Checks the health of a cluster, and that clients reach it: connects from here to every address
that brokers advertise.
"""

import asyncio
import ssl
import time
from collections.abc import Sequence
from typing import Final

from ottla_broker.config.addresses import format_host_and_port
from ottla_broker.wire.channel import open_channel
from ottla_broker.wire.client import parse_bootstrap_servers
from ottla_broker.wire.client_security import ClientSecurity
from ottla_broker.wire.errors import KafkaError, describe_os_error
from ottla_operator.doctor.finding import Finding, Severity
from ottla_operator.formatting import format_count, format_duration
from ottla_operator.kafka import cluster, reassignments, topics
from ottla_operator.kafka.client import KafkaClient, Unreachable, connect

AREA: Final = "brokers"
TIMEOUT_S: Final = 5.0
RENEW_BEFORE_S: Final = 14 * 86_400.0

Address = tuple[str, int]


async def examine_brokers(bootstrap: str, security: ClientSecurity) -> list[Finding]:
    """Connects to the bootstrap addresses; if one of them answers, also to every address that
    brokers advertise, and examines the cluster. Raises ValueError if `bootstrap` is not a list of
    addresses.
    """
    bootstrap_addresses = parse_bootstrap_servers(bootstrap)
    findings = [
        await _examine_address(f"bootstrap {format_host_and_port(*it)}", it, security) for it in bootstrap_addresses
    ]
    if not any(it.severity in (Severity.good, Severity.warning) for it in findings):
        return findings
    try:
        async with connect(bootstrap, timeout_s=TIMEOUT_S, security=security) as client:
            description = await cluster.describe_cluster(client, include_fenced=True)
            findings.append(evaluate_controller(description.controller))
            findings += find_fenced_brokers(description.brokers)
            for broker in description.brokers:
                if not broker.is_fenced and (address := (broker.host, broker.port)) not in bootstrap_addresses:
                    subject = f"broker {broker.id} at {format_host_and_port(*address)}"
                    findings.append(await _examine_address(subject, address, security))
            findings.append(await _examine_partitions(client))
    except (KafkaError, Unreachable) as reason:
        impact = "nothing is known of the cluster without it"
        next_step = "if access is refused, grant DESCRIBE on the cluster: ottla acls explain tells which rule decides"
        findings.append(Finding(AREA, "description of the cluster", Severity.problem, str(reason), impact, next_step))
    return findings


def evaluate_controller(controller: int) -> Finding:
    if controller >= 0:
        return Finding(AREA, "controller", Severity.good, f"broker {controller}")
    impact = "topics cannot be changed, and no leader can be elected"
    next_step = "start the brokers that are missing; if disks are lost for good: ottla cluster recover"
    return Finding(AREA, "controller", Severity.problem, "no broker is the controller", impact, next_step)


def find_fenced_brokers(brokers: Sequence[cluster.BrokerInfo]) -> list[Finding]:
    """One finding for each broker that is registered but fenced."""
    return [
        Finding(
            AREA,
            f"broker {it.id}",
            Severity.problem,
            "registered, and down or cut off",
            "its replicas are not in sync: another failure may make partitions unavailable",
            f"look into its log; if it is gone for good: ottla cluster drain {it.id}",
        )
        for it in brokers
        if it.is_fenced
    ]


def evaluate_partitions(count: int, problems: Sequence[cluster.PartitionProblem]) -> Finding:
    offline = sum(it.kind == cluster.OFFLINE for it in problems)
    behind = len(problems) - offline
    if offline:
        observed = f"{offline} of {format_count(count, 'partition')} without a leader"
        impact = "they can be neither written nor read"
        return Finding(AREA, "partitions", Severity.problem, observed, impact, "ottla cluster health lists them")
    if behind:
        observed = f"{behind} of {format_count(count, 'partition')} under-replicated"
        impact = "they have fewer copies than they should"
        return Finding(AREA, "partitions", Severity.warning, observed, impact, "ottla cluster health lists them")
    return Finding(AREA, "partitions", Severity.good, f"{format_count(count, 'partition')}, all in sync")


def evaluate_certificate(subject: str, not_after: float, now: float) -> Finding:
    """`not_after`: end of the certificate's validity. Times are seconds since 1970."""
    left_s = not_after - now
    if left_s > RENEW_BEFORE_S:
        observed = f"answers; its certificate is valid for another {format_duration(left_s)}"
        return Finding(AREA, subject, Severity.good, observed)
    impact = "clients refuse a certificate that has expired"
    next_step = "renew the certificate; brokers read it again without a restart"
    return Finding(
        AREA, subject, Severity.warning, f"its certificate expires in {format_duration(left_s)}", impact, next_step
    )


async def _examine_address(subject: str, address: Address, security: ClientSecurity) -> Finding:
    host, port = address
    try:
        async with asyncio.timeout(TIMEOUT_S):
            channel = await open_channel(host, port, "ottla-doctor", security=security)
            channel.close()
            if (context := security.ssl_context()) is None:
                return Finding(AREA, subject, Severity.good, "answers")
            return evaluate_certificate(subject, await _certificate_expiry(host, port, context), time.time())
    except ssl.SSLError as reason:
        impact = "clients that verify certificates do not connect"
        next_step = "use a certificate that names this host, and trust its CA in ssl.truststore.location"
        return Finding(AREA, subject, Severity.problem, describe_os_error(reason), impact, next_step)
    except TimeoutError:
        observed = f"no answer within {TIMEOUT_S:g} s"
    except OSError as reason:
        observed = describe_os_error(reason)
    except KafkaError as reason:
        impact = "the broker refuses this login"
        next_step = "compare security.protocol, sasl.mechanism, user and password with the listener's"
        return Finding(AREA, subject, Severity.problem, str(reason), impact, next_step)
    impact = "clients connect to every broker, at the address that it advertises"
    next_step = (
        "start the broker, or let it advertise an address that clients reach: advertised.listeners, advertisedHost"
    )
    return Finding(AREA, subject, Severity.problem, observed, impact, next_step)


async def _certificate_expiry(host: str, port: int, context: ssl.SSLContext) -> float:
    _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=host)
    try:
        certificate = writer.get_extra_info("ssl_object").getpeercert()
        return ssl.cert_time_to_seconds(certificate["notAfter"])
    finally:
        writer.close()


async def _examine_partitions(client: KafkaClient) -> Finding:
    all_topics = await topics.list_topics(client)
    problems = cluster.find_partition_problems(all_topics, await reassignments.list_reassignments(client))
    return evaluate_partitions(sum(len(topic.partitions) for topic in all_topics), problems)
