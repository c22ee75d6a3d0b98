"""Registrations of brokers, as far as the console shows them."""

from uuid import uuid4

from ottla_broker.metadata.image import BrokerRegistration


def registration(
    broker: int, epoch: int = 1, *, fenced: bool = False, shutting_down: bool = False
) -> BrokerRegistration:
    return BrokerRegistration(broker, epoch, uuid4(), {}, None, (), fenced, shutting_down)
