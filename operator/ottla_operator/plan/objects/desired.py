"""All objects of a Cluster together, and what about a Cluster Kubernetes cannot fulfil."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla_operator.plan.broker_processes import NO_LOGINS
from ottla_operator.plan.objects import access, names
from ottla_operator.plan.objects.addresses import Addresses, services_without_address
from ottla_operator.plan.objects.pods import BrokerImages, pod_template
from ottla_operator.plan.objects.services import services
from ottla_operator.plan.objects.settings import Settings, all_broker_settings, common_settings, config_map
from ottla_operator.plan.objects.stateful_set import stateful_set
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.model import Json

_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class ObjectInputs:
    """What there is already. `brokers`: pods that the StatefulSet shall have now. `notes`: annotations that the operator keeps on it. `common`: settings
    for all brokers instead of those that follow from the Cluster, while some of these are refused. `certificates`: names those of the listeners. `in_use`: ports between
    brokers of the pods that are there."""

    brokers: int
    addresses: Addresses = field(default_factory=Addresses)
    state_annotations: Mapping[str, str] = field(default_factory=dict)
    common: Settings | None = None
    certificates: str = ""
    in_use: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class DesiredObjects:
    """`first`: what pods need before they are made. `budget`: how many may be evicted, while every partition can spare a broker. `settings` and `brokers` are None while a broker would not know its address; `waits_for` names
    the Services then."""

    prerequisites: tuple[Json, ...]
    budget: Json
    settings: Json | None
    stateful_set: Json | None
    waiting_for_services: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[Json, ...]:
        return (*self.prerequisites, self.budget, *(it for it in (self.settings, self.stateful_set) if it is not None))


def desired_objects(cluster: Cluster, images: BrokerImages, given: ObjectInputs) -> DesiredObjects:
    """`unfit(cluster)` must be empty."""
    ids = broker_ids(given.brokers)
    first = (
        access.service_account(cluster),
        access.role(cluster),
        access.role_binding(cluster),
        access.lease(cluster),
        *services(cluster, ids),
        access.network_policy(cluster, given.in_use),
    )
    budget = access.disruption_budget(cluster)
    if waits := [service for broker in ids for service in services_without_address(cluster, broker, given.addresses)]:
        return DesiredObjects(first, budget, None, None, tuple(waits))
    common = given.common or common_settings(cluster, given.brokers)
    settings = config_map(cluster, common, all_broker_settings(cluster, ids, given.addresses))
    template = pod_template(cluster, images, settings["metadata"]["name"], given.certificates)
    return DesiredObjects(
        first, budget, settings, stateful_set(cluster, template, given.brokers, given.state_annotations)
    )


def broker_ids(brokers: int) -> range:
    return range(names.FIRST_BROKER, names.FIRST_BROKER + brokers)


def find_unsupported(cluster: Cluster) -> str:
    """Why Kubernetes cannot have this Cluster, in words; empty when it can."""
    if not _NAME.fullmatch(cluster.name):
        return (
            f"metadata.name: {cluster.name!r} cannot begin the names of Services: it takes a small letter first, then small letters, digits "
            "and '-', at most 40 in all"
        )
    if cluster.spec.storage is None:
        return "spec.storage is missing: Kubernetes has to know how large the brokers' disks are, for example storage: {size: 10Gi}"
    for index, it in enumerate(cluster.listeners):
        if it.authentication == "SCRAM":
            return f"spec.listeners[{index}].authentication: {NO_LOGINS}"
    if cluster.spec.authorization and cluster.spec.authorization.type != "None":
        return "spec.authorization: access control lists are not built yet: everybody could do everything"
    return ""
