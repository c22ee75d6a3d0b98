from kio.schema.index import api_key_map, schema_name_map

from ottla_broker.api.form import Form
from ottla_broker.api.table import DECLARED, form_of, is_there, served
from ottla_broker.wire.codec import request_class, response_class


def test_no_api_is_missing() -> None:
    assert [api.name for api in DECLARED if not is_there(api)] == []


def test_ceilings_are_what_kio_offers() -> None:
    for api in DECLARED:
        assert api_key_map[api.key] == api.name
        known = schema_name_map[api.name]
        assert api.high == max(known), api
        assert api.low == min(known) or api.name == "produce"  # rule 16: produce is offered from 0


def test_rule_16_produce_is_offered_from_version_0() -> None:
    """librdkafka looks at Produce's lowest version to decide whether the broker can take compressed batches."""
    assert next(api.low for api in DECLARED if api.name == "produce") == 0


def test_forms_cover_exactly_the_declared_versions() -> None:
    for api in served().values():
        if api.name in ("produce", "fetch"):  # their codecs are written by hand: wire/produce.py, wire/fetch.py
            continue
        versions: list[int] = []
        for version in range(api.low, api.high + 1):
            form = form_of(api.key, version)
            assert isinstance(form, Form), f"{api.name} {version}"
            versions.append(version)
            anchors = range(form.low, form.high + 1)
            assert any(request_class(api.key, anchor) is form.request for anchor in anchors), (
                f"{api.name}: {form.request}"
            )
            assert any(response_class(api.key, anchor) is form.response for anchor in anchors), (
                f"{api.name}: {form.response}"
            )
        assert form_of(api.key, api.low - 1) is None
        assert form_of(api.key, api.high + 1) is None
