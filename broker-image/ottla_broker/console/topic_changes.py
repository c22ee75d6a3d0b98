"""The pages that create a topic, change one of its configs, and delete it."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final
from urllib.parse import quote

from aiohttp import web
from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.types import TopicName
from kio.static.primitive import i8, i16, i32, i32Timedelta

from ottla_broker.api.incremental_alter_configs import ConfigOperation
from ottla_broker.broker import Broker
from ottla_broker.config.description import describe_topic
from ottla_broker.console.login import redirect
from ottla_broker.console.requests import PageError, PageRequest
from ottla_broker.console.topics import ConfigRow, TopicPages
from ottla_broker.console.user_requests import check_may_write, read_write_form, render_form, send_as_user
from ottla_broker.dispatcher import RequestDispatcher
from ottla_broker.metadata.image import TopicImage
from ottla_broker.requests.config_resources import ConfigResource
from ottla_broker.requests.context import AUTHORIZATION_ERRORS
from ottla_broker.security.authorizer import Operation, Resource
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

USE_CLUSTER_DEFAULT: Final = -1
IMAGE_TIMEOUT_S: Final = 5.0
"""How long a page waits until this broker knows a change that the controller has made."""
CHANGE_TIMEOUT: Final = i32Timedelta.parse(timedelta(seconds=15))


class TopicChangePages:
    """Requests are dispatched as those of the user, whose rights are checked as for any client."""

    def __init__(self, broker: Broker, dispatcher: RequestDispatcher, topics: TopicPages) -> None:
        self._broker = broker
        self._dispatcher = dispatcher
        self._topics = topics

    async def show_create(self, page: PageRequest) -> web.Response:
        check_may_write(page)
        return render_form(page, "topic_create.html", {})

    async def create(self, page: PageRequest) -> web.Response:
        form = await read_write_form(page)
        try:
            topic = parse_new_topic(form)
            request = CreateTopicsRequest(topics=(topic,), timeout=CHANGE_TIMEOUT, validate_only=False)
            (result,) = (await send_as_user(self._dispatcher, page.user, request)).topics
            check_result(result.error_code, result.error_message)
        except (ValueError, KafkaError) as reason:
            return render_form(page, "topic_create.html", form, str(reason))
        await self._broker.image_condition.wait_for(
            lambda: topic.name in self._broker.image.topics, timeout_s=IMAGE_TIMEOUT_S
        )
        return redirect(f"/topics/{quote(topic.name)}")

    async def show_config(self, page: PageRequest) -> web.Response:
        check_may_write(page)
        topic, config = self._find_config(page)
        return render_form(page, "topic_config.html", {"value": config.value}, topic=topic, config=config)

    async def change_config(self, page: PageRequest) -> web.Response:
        """Sets a config of the topic, or removes it, after which the default applies
        (`action=remove`).
        """
        form = await read_write_form(page)
        topic, config = self._find_config(page)
        removes = form.get("action") == "remove"
        change = AlterableConfig(
            name=config.name,
            config_operation=i8(ConfigOperation.DELETE if removes else ConfigOperation.SET),
            value=None if removes else form.get("value", "").strip(),
        )
        resource = AlterConfigsResource(
            resource_type=i8(ConfigResource.TOPIC), resource_name=topic.name, configs=(change,)
        )
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        try:
            (result,) = (await send_as_user(self._dispatcher, page.user, request)).responses
            check_result(result.error_code, result.error_message)
        except KafkaError as reason:
            return render_form(page, "topic_config.html", form, str(reason), topic=topic, config=config)
        await self._broker.image_condition.wait_for(
            lambda: self._broker.image.topic_config(topic.name).get(config.name) == change.value,
            timeout_s=IMAGE_TIMEOUT_S,
        )
        return redirect(f"/topics/{quote(topic.name)}#configs")

    async def show_delete(self, page: PageRequest) -> web.Response:
        check_may_write(page)
        return render_form(page, "topic_delete.html", {}, topic=self._topics.find_topic(page))

    async def delete(self, page: PageRequest) -> web.Response:
        """Deletes the topic that the page has shown. Raises PageError if another topic has its name
        now.
        """
        form = await read_write_form(page)
        topic = self._topics.find_topic(page)
        if form.get("id", "") != str(topic.id):
            raise PageError(409, f"{topic.name} is another topic than the one that was shown; load the page again.")
        if form.get("name", "") != topic.name:
            return render_form(page, "topic_delete.html", form, "The name is not that of the topic.", topic=topic)
        states = (DeleteTopicState(name=None, topic_id=topic.id),)
        response = await send_as_user(
            self._dispatcher, page.user, DeleteTopicsRequest(topics=states, timeout=CHANGE_TIMEOUT)
        )
        try:
            (result,) = response.responses
            check_result(result.error_code, result.error_message)
        except KafkaError as reason:
            return render_form(page, "topic_delete.html", form, str(reason), topic=topic)
        await self._broker.image_condition.wait_for(
            lambda: self._broker.image.topic_by_id(topic.id) is None, timeout_s=IMAGE_TIMEOUT_S
        )
        return redirect("/topics")

    def _find_config(self, page: PageRequest) -> tuple[TopicImage, ConfigRow]:
        """The topic and the config that the path names. Raises PageError, and
        TOPIC_AUTHORIZATION_FAILED for a user who may not describe configs.
        """
        topic, name = self._topics.find_topic(page), page.http.match_info["config"]
        page.user.check(Operation.describe_configs, Resource.topic(topic.name), ApiKey.DESCRIBE_CONFIGS)
        for entry in describe_topic(self._broker.config, self._broker.image.topic_config(topic.name)):
            if entry.name == name:
                return topic, ConfigRow.of(entry)
        raise PageError(404, f"Topics have no config {name!r}.")


def parse_new_topic(form: Mapping[str, str]) -> CreatableTopic:
    """The new topic that a form describes. Raises ValueError."""
    configs = {}
    for line in form.get("configs", "").splitlines():
        if line.strip():
            name, equals, value = line.partition("=")
            if not equals:
                raise ValueError(f"configs: expected lines of the form name=value, not {line[:40]!r}")
            configs[name.strip()] = value.strip()
    return CreatableTopic(
        name=TopicName(form.get("name", "").strip()),
        num_partitions=i32(parse_count(form, "partitions", 2**31 - 1)),
        replication_factor=i16(parse_count(form, "replicas", 2**15 - 1)),
        assignments=(),
        configs=tuple(CreatableTopicConfig(name=name, value=value) for name, value in configs.items()),
    )


def parse_count(form: Mapping[str, str], field: str, at_most: int) -> int:
    """The number in a field; USE_CLUSTER_DEFAULT for an empty one. Raises ValueError."""
    text = form.get(field, "").strip()
    if not text:
        return USE_CLUSTER_DEFAULT
    if not (text.isdecimal() and 1 <= int(text) <= at_most):
        raise ValueError(f"{field}: expected a number from 1 to {at_most}, not {text[:20]!r}")
    return int(text)


def check_result(code: ErrorCode, message: str | None) -> None:
    """Raises KafkaError for an error code, but PageError for those of missing rights."""
    if code in AUTHORIZATION_ERRORS.values():
        raise PageError(403, message or f"Access rules do not allow it: {code.name.upper()}.")
    if code is not ErrorCode.none:
        raise KafkaError(code, message or f"The controller refused it: {code.name.upper()}.")
