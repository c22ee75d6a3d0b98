"""Valid resources for tests to modify, as plain JSON."""

from typing import Any

Json = dict[str, Any]


def resource(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": "ottla.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def cluster(name: str = "demo", **spec: Any) -> Json:
    return resource("Cluster", name, {"replicas": 1, **spec})


def topic(name: str = "flights", **spec: Any) -> Json:
    return resource("Topic", name, {"clusterRef": {"name": "demo"}, **spec})


def group(name: str = "work", **spec: Any) -> Json:
    config = {"share.auto.offset.reset": "earliest"}
    return resource("Group", name, {"clusterRef": {"name": "demo"}, "config": config, **spec})


def schema(name: str = "flights-value", **spec: Any) -> Json:
    text = {} if "schemaFrom" in spec else {"schema": '"string"'}
    return resource("Schema", name, {"clusterRef": {"name": "demo"}, **text, **spec})


def pipeline(name: str = "hourly", **spec: Any) -> Json:
    return resource(
        "Pipeline",
        name,
        {
            "clusterRef": {"name": "demo"},
            "sources": {"flights": {"topic": "flights", "format": {"type": "json", "schema": "carrier STRING"}}},
            "transforms": [{"name": "late", "sql": "SELECT * FROM flights"}],
            "sinks": [{"from": "late", "topic": "late"}],
            **spec,
        },
    )


def mirror(name: str = "west", **spec: Any) -> Json:
    return resource(
        "Mirror",
        name,
        {"source": {"bootstrap": "west:9092"}, "target": {"clusterRef": {"name": "demo"}}, "topics": ["*"], **spec},
    )


def user(name: str = "alice", **spec: Any) -> Json:
    return resource("User", name, {"clusterRef": {"name": "demo"}, "authentication": {"type": "SCRAM-SHA-512"}, **spec})


def access_policy(name: str = "readers", **spec: Any) -> Json:
    return resource("AccessPolicy", name, {"acls": [{"allow": ["Read"], "topic": "orders*"}], **spec})


ALL = (cluster, topic, group, schema, pipeline, mirror, user, access_policy)
