"""The mirrors of one cluster, into which they copy: kept as wished by its brokers' settings, and told of on the board."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla_broker.wire.errors import KafkaError
from ottla_operator.kafka import mirrors
from ottla_operator.kafka.client import KafkaClient, Unreachable
from ottla_operator.local.live_view import LiveView, MirrorRow, State
from ottla_operator.plan import mirror as plan
from ottla_operator.plan import source_credentials
from ottla_operator.plan.conditions import Readiness, Ready, Stalled
from ottla_operator.plan.source_credentials import ObservedSecret, SecretUnusable
from ottla_operator.resources.mirror import Mirror

LOOK_S = 1.0
STATES = {Ready: State.running, Stalled: State.failed}


@dataclass(frozen=True, slots=True)
class MirrorWish:
    """`source`: addresses of the source's brokers. `secrets`: by name, those of the files."""

    mirror: Mirror
    source: str
    secrets: Mapping[str, ObservedSecret] = field(default_factory=dict)


@dataclass(slots=True)
class Mirrors:
    """`wanted` may be replaced at any time; then set `changed`."""

    cluster: str
    board: LiveView
    wanted: tuple[MirrorWish, ...]
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _said: dict[str, str] = field(default_factory=dict)
    _wished: dict[str, str] = field(default_factory=dict)  # the role that each wished for last

    async def keep(self, link: KafkaClient) -> None:
        """For ever."""
        while True:
            self.changed.clear()
            for wish in self.wanted:
                try:
                    await self._one(link, wish)
                except (KafkaError, Unreachable, SecretUnusable) as error:
                    self._row(wish).state, self._row(wish).note = State.retrying, str(error)
                    if not isinstance(error, Unreachable):
                        self._say(wish, str(error), "bad")
            self._drop_gone()
            try:
                async with asyncio.timeout(LOOK_S if self.wanted else None):
                    await self.changed.wait()
            except TimeoutError:
                pass

    async def _one(self, link: KafkaClient, wish: MirrorWish) -> None:
        name, row = wish.mirror.name, self._row(wish)
        if found := plan.unsupported_fields(wish.mirror):
            row.state, row.note = State.failed, "; ".join(f"spec.{it.field} {it.reason}" for it in found)
            self._say(wish, row.note, "bad")
            return
        wanted = plan.mirror_settings(wish.mirror, wish.source) | source_credentials.credential_settings(
            wish.mirror, wish.secrets
        )
        itself = await mirrors.describe_mirror(link, name)
        if (unasked := plan.find_unrequested_failover(wanted, itself.settings, self._wished.get(name))) is not None:
            row.state, row.note = State.failed, unasked.message
            self._say(wish, unasked.message, "bad")
            return
        self._wished[name] = wanted[plan.ROLE]
        if changes := plan.plan_mirror_changes(wanted, itself.settings):
            await mirrors.alter_mirror(link, name, changes)
            self.board.say(f"mirror {name}: {source_credentials.redacted_changes(changes)}", "info")
            itself = await mirrors.describe_mirror(link, name)
        seen = await mirrors.describe_mirrored_partitions(link, name)
        judged = plan.evaluate_mirror(wanted, seen, itself)
        row.topics = len({it.topic for it in seen})
        known = [it.lag for it in seen if it.lag != plan.UNKNOWN]
        row.lag_records = sum(known) if known else None
        row.lag_seconds = max((it.lag_seconds for it in seen if it.lag_seconds != plan.UNKNOWN), default=None)
        row.state, row.note = STATES.get(type(judged), State.starting), judged.message
        self._say_news(wish, judged)

    def _say_news(self, wish: MirrorWish, judged: Readiness) -> None:
        """What changes all the time (how far it is behind) is on the board alone."""
        text = judged.message if judged.reason not in ("Replicating", "FailingOver") else judged.reason
        self._say(wish, text, "bad" if isinstance(judged, Stalled) else "info")

    def _say(self, wish: MirrorWish, text: str, kind: str) -> None:
        if self._said.get(wish.mirror.name) != text:
            self._said[wish.mirror.name] = text
            self.board.say(f"mirror {wish.mirror.name}: {text}", kind)

    def _row(self, wish: MirrorWish) -> MirrorRow:
        name = wish.mirror.name
        return self.board.mirrors.setdefault((self.cluster, name), MirrorRow(self.cluster, name))

    def _drop_gone(self) -> None:
        wished = {it.mirror.name for it in self.wanted}
        for key in [it for it in self.board.mirrors if it[0] == self.cluster and it[1] not in wished]:
            del self.board.mirrors[key]
            self._said.pop(key[1], None)
            self.board.say(f"mirror {key[1]} is no longer described; it goes on as it is set", "info")
