"""The declarations in `ottla_broker.api` agree with kio's schemas, with their docstrings and with
the files that are generated from them.
"""

import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest
from kio.schema.index import api_key_map, schema_name_map

import ottla_broker.api
from ottla_broker.api.api_versions import api_versions_response
from ottla_broker.hot_paths import hot_paths_build
from ottla_broker.requests import protocol_page
from ottla_broker.requests.api import CHECK_NEXT, Api, find_handler
from ottla_broker.requests.protocol_page import declared_apis
from ottla_broker.requests.served_versions import SERVED_VERSIONS
from ottla_broker.wire.api_keys import FIRST_OWN_KEY, ApiKey
from ottla_broker.wire.codec import request_class, response_class
from ottla_broker.wire.errors import ErrorCode

APIS = declared_apis()
FRAME_HANDLED = (ApiKey.PRODUCE, ApiKey.FETCH)  # with codecs of their own: wire/produce.py, wire/fetch_request.py
OF_SOURCE = pytest.mark.skipif(
    hot_paths_build() == "compiled", reason="compiled modules have no docstrings, and docs/ is not beside them"
)


def test_package_api_has_a_module_for_each_api_and_no_other() -> None:
    modules = {module.name for module in iter_modules(ottla_broker.api.__path__)}
    assert modules == {api.key.name.lower() for api in APIS}


KAFKA_APIS = [api for api in APIS if api.key < FIRST_OWN_KEY]


@pytest.mark.parametrize("api", KAFKA_APIS, ids=lambda api: api.key.name.lower())
def test_declared_versions_are_those_of_kio(api: Api) -> None:
    name = api.key.name.lower()
    assert api_key_map[api.key] == name
    kio_versions = schema_name_map[name]
    assert api.versions[1] == max(kio_versions)
    assert api.versions[0] == min(kio_versions) or api.key is ApiKey.PRODUCE  # rule 16: produce is offered from 0
    flexible = [version for version in sorted(kio_versions) if getattr(request_class(api.key, version), "__flexible__")]  # noqa: B009
    assert api.flexible == (flexible[0] if flexible else None)


def test_ottlas_own_apis_are_served_and_not_listed_to_clients() -> None:
    own = {int(api.key) for api in APIS} - {int(api.key) for api in KAFKA_APIS}
    assert own and own <= SERVED_VERSIONS.keys()
    assert not own & {it.api_key for it in api_versions_response(ErrorCode.none).api_keys}


def test_rule_16_produce_is_offered_from_version_0() -> None:
    """librdkafka decides by the lowest version of Produce whether it may send compressed
    batches.
    """
    assert SERVED_VERSIONS[ApiKey.PRODUCE][0] == 0


@pytest.mark.parametrize("api", [api for api in APIS if api.key not in FRAME_HANDLED], ids=lambda api: api.key.name)
def test_handlers_cover_exactly_the_declared_versions(api: Api) -> None:
    first, last = api.versions
    for version in range(first, last + 1):
        handler = find_handler(api.key, version)
        assert handler is not None, version
        assert handler.request is request_class(api.key, handler.last)
        assert handler.response is response_class(api.key, handler.last)
    assert sum(handler.last - handler.first + 1 for handler in api.handlers) == last - first + 1
    assert find_handler(api.key, first - 1) is None
    assert find_handler(api.key, last + 1) is None


@OF_SOURCE
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.key.name.lower())
def test_docstring_begins_with_name_key_and_versions(api: Api) -> None:
    first, last = api.versions
    versions = f"version {first}" if first == last else f"versions {first}–{last}"
    text = import_module(f"ottla_broker.api.{api.key.name.lower()}").__doc__ or ""
    assert re.match(rf"{api.key.title} \({int(api.key)}\), {versions}\b", text)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.key.name.lower())
def test_last_right_of_an_api_does_not_refer_to_a_next_one(api: Api) -> None:
    assert not api.rights or api.rights[-1].refused != CHECK_NEXT


@OF_SOURCE
def test_generated_files_are_current() -> None:
    run = "run: python -m ottla_broker.requests.protocol_page"
    assert Path(protocol_page.PAGE).read_text() == protocol_page.protocol_page(), run
    assert Path(protocol_page.SERVED_VERSIONS).read_text() == protocol_page.served_versions_source(), run
