"""Names of Java classes, which are looked up in the JVM's class path once."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.java_gateway import GatewayClient
from py4j.protocol import REFL_GET_UNKNOWN_SUB_COMMAND_NAME, REFLECTION_COMMAND_NAME
from pyspark import SparkContext

from tests.spark.conftest import Runner, Topics, events

LOOKUP = REFLECTION_COMMAND_NAME + REFL_GET_UNKNOWN_SUB_COMMAND_NAME


def test_each_name_is_looked_up_once(pipeline: Runner, topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    topics.create("names-in", "names-out")
    spec = {"sources": {"events": events("names-in")}, "sinks": [{"from": "events", "topic": "names-out"}]}
    lookups: list[str] = []
    send = GatewayClient.send_command

    def record(client: GatewayClient, command: str, *others: Any, **more: Any) -> Any:
        if command.startswith(LOOKUP):
            lookups.append(command.splitlines()[2])
        return send(client, command, *others, **more)

    for number in range(3):  # the first starts from nothing, the others from a checkpoint
        if number == 2:
            monkeypatch.setattr(GatewayClient, "send_command", record)
        topics.write("names-in", {"id": number})
        pipeline(spec)
    assert lookups == []
    jvm: Any = SparkContext._jvm
    with pytest.raises(TypeError):
        jvm.org.apache.NoClass()
    assert lookups == ["org.apache.NoClass"]
