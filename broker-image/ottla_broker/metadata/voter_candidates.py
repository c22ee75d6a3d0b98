"""The registered brokers as candidates for voters of the metadata log."""

from ottla_broker.config import CONTROLLER_QUORUM_AUTO_JOIN_ENABLE
from ottla_broker.config.addresses import format_host_and_port
from ottla_broker.metadata.image import BROKER_RESOURCE, BrokerRegistration, MetadataImage
from ottla_broker.metadata.placement import UsableBroker
from ottla_broker.metadata.voter_set import Voter


def brokers_as_voters(image: MetadataImage, listener: str) -> list[Voter]:
    """Each registered broker as the voter that it is or would be, except those that have no such
    listener or no working log directory. `listener`: the name of the inter-broker listener.
    """
    voters = []
    for broker in image.brokers.values():
        endpoint = broker.endpoints.get(listener)
        if endpoint is not None and broker.directories:
            address = format_host_and_port(endpoint.host, endpoint.port)
            voters.append(Voter(broker.id, broker.directories[0], address))
    return voters


def may_join_voters(image: MetadataImage, broker: int) -> bool:
    """False for a broker that an administrator removed from the voters."""
    setting = CONTROLLER_QUORUM_AUTO_JOIN_ENABLE
    value = image.configs.get((BROKER_RESOURCE, str(broker)), {}).get(setting.name)
    return setting.default if value is None else setting.parse(value)


def node_key(broker: BrokerRegistration) -> str:
    """Equal for the brokers of one node."""
    return UsableBroker(broker.id, broker.rack, broker.node).node_key
