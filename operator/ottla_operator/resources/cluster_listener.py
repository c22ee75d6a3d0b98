"""A listener of a Cluster: how clients reach its brokers."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from ottla_operator.resources.common import PlainObject
from ottla_operator.resources.model import Model, Rule, doc

Port = Annotated[int, Meta(ge=1, le=65535)]
LISTENER_NAME: Final = r"^[a-z][a-z0-9]*$"


class Listener(Model, frozen=True):
    """Address that clients connect to."""

    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=11,
            pattern=LISTENER_NAME,
            description="Name of the listener: lower-case letters and digits. "
            "The brokers' listeners setting has it in upper case.",
        ),
    ]
    port: Annotated[Port, doc("Port that every broker listens on. With `ottla up`: the port of the first broker.")]
    type: Annotated[
        Literal["Internal", "NodePort", "LoadBalancer"] | None,
        doc(
            "How the listener is exposed. Internal: within the Kubernetes cluster. NodePort: outside, at the nodes' "
            "addresses. LoadBalancer: outside, through one load balancer for each broker. Defaults to Internal."
        ),
    ] = None
    tls: Annotated[bool | None, doc("Whether connections are encrypted. Needs spec.tls. Defaults to false.")] = None
    authentication: Annotated[
        Literal["None", "SCRAM", "TLS"] | None,
        doc(
            "How clients authenticate. None: they do not. SCRAM: with user name and password (SCRAM-SHA-256, "
            "SCRAM-SHA-512). TLS: with a client certificate. Defaults to None."
        ),
    ] = None
    node_port: Annotated[
        Port | None,
        doc("Fixed node port of the bootstrap Service. Only for type NodePort. Defaults to an unused port."),
    ] = None
    advertised_host: Annotated[
        Annotated[str, Meta(max_length=253)] | None,
        doc(
            "Host name that brokers advertise to clients; {id} stands for the broker id. Only for types NodePort and "
            "LoadBalancer. Defaults to the discovered address."
        ),
    ] = None
    network_policy_peers: Annotated[
        Annotated[list[PlainObject], Meta(min_length=1, max_length=100)] | None,
        doc(
            "Who may connect to the listener, as in the `from` of a NetworkPolicy: items with podSelector, "
            "namespaceSelector or ipBlock. Needs a network plugin that enforces policies. Ignored by `ottla up`. "
            "Defaults to everybody."
        ),
    ] = None

    rules = (
        Rule(
            "!has(self.authentication) || self.authentication != 'TLS' || (has(self.tls) && self.tls)",
            "authentication TLS needs tls: true on the same listener",
            lambda value: value.get("authentication") != "TLS" or value.get("tls") is True,
            "authentication",
        ),
        Rule(
            "!has(self.nodePort) || (has(self.type) && self.type == 'NodePort')",
            "nodePort needs type: NodePort",
            lambda value: "nodePort" not in value or value.get("type") == "NodePort",
            "nodePort",
        ),
    )
