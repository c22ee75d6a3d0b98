"""Which store a `register` setting names. What a store needs is imported only for brokers that use it: a file needs no HTTP client."""

from collections.abc import Mapping

from ottla_broker.metadata.register import Register
from ottla_broker.metadata.register.file import FileRegister
from ottla_broker.runtime import Runtime


def open_register(register: str, runtime: Runtime, environment: Mapping[str, str]) -> Register:
    """`register` as the setting's kind lets it through. Nothing is reached yet; RegisterError when it is known that nothing could be."""
    store, _, where = register.partition(":")
    if store == "etcd":
        from ottla_broker.metadata.register.etcd import EtcdRegister

        return EtcdRegister(where)
    if store == "kubernetes":
        from ottla_broker.metadata.register.api_server import ApiServer
        from ottla_broker.metadata.register.kubernetes import KubernetesRegister

        return KubernetesRegister(where, ApiServer.from_environment(environment))
    return FileRegister(where, runtime)
