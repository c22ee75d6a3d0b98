"""Schemas over the registry's REST interface."""

import asyncio
import json
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp.test_utils import make_mocked_request

from ottla_broker.registry.errors import RegistryError
from ottla_broker.registry.record_format import SchemasRecord, schema_key, schema_value
from ottla_broker.registry.rest.schemas import SchemasApi
from ottla_broker.registry.schema import Schema
from ottla_broker.registry.schema_registry import SchemaRegistry
from ottla_broker.registry.state import RegistryState

SCHEMA = Schema("AVRO", '"string"')


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        (("a", ":.lab:b"), [{"context": ".", "id": 1}, {"context": ".lab", "id": 7}]),
        ((":.lab:b",), [{"context": ".lab", "id": 7}]),
        ((), 403),
    ],
)
def test_ids_of_a_guid_are_those_of_subjects_that_the_client_may_describe(
    described: Collection[str], expected: object
) -> None:
    state = RegistryState()
    for subject, schema_id in (("a", 1), (":.lab:b", 7)):
        state.apply(SchemasRecord(schema_key(subject, 1), schema_value(subject, 1, schema_id, SCHEMA)))
    request = make_mocked_request("GET", "/", match_info={"guid": SCHEMA.guid()})
    request["may_describe"] = described.__contains__
    api = SchemasApi(cast(SchemaRegistry, SimpleNamespace(state=state)))
    assert call(api, request) == expected


def call(api: SchemasApi, request: Any) -> object:
    try:
        return json.loads(cast(bytes, asyncio.run(api.list_ids_of_guid(request)).body))
    except RegistryError as reason:
        return reason.status
