"""The keys that sign OAuth tokens: a JSON Web Key Set (RFC 7517), fetched periodically.

- While the endpoint fails, the last keys remain valid, and fetches are repeated with growing
  pauses.
- A token that names an unknown key causes a fetch at once: at most one fetch a minute for a key
  that stays unknown, and one per second in all.
"""

import asyncio
import json
import logging
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from ottla_broker.event_timeout import wait_for_event

logger = logging.getLogger(__name__)

FETCH_TIMEOUT_S: Final = 10.0
MAX_SET_BYTES: Final = 1 << 20
ACCEPTED_TYPES: Final = "application/jwk-set+json, application/json, */*;q=0.1"
"""The API server of Kubernetes has its set in the first type alone."""
UNKNOWN_KEY_INTERVAL_S: Final = 60.0
MAX_UNKNOWN_KEYS: Final = 16
MAX_KEY_ID_LENGTH: Final = 1000
MIN_FETCH_INTERVAL_S: Final = 1.0
LOGIN_WAIT_S: Final = 5.0
"""How long a login waits for a set that is fetched because of its token."""

JsonWebKey = Mapping[str, Any]
"""A JSON Web Key: its members by name."""


class JwksEndpoint(msgspec.Struct, frozen=True):
    """`url`: https://, http:// or file://. `trusted_certificates`: a file of PEM; empty: the
    system's authorities. `token_file`: its content is sent as a bearer token, read for each
    request; empty: none is sent.
    """

    url: str
    trusted_certificates: str = ""
    token_file: str = ""

    def fetch(self) -> list[JsonWebKey]:
        """Blocking. Raises OSError; ValueError if the response is not a key set."""
        import urllib.request  # 20 ms, for listeners with OAUTHBEARER alone

        request = urllib.request.Request(self.url, headers={"Accept": ACCEPTED_TYPES})
        if self.token_file:
            with open(self.token_file, encoding="ascii") as file:  # noqa: PTH123 (pathlib costs start-up time)
                request.add_header("Authorization", f"Bearer {file.read().strip()}")
        context = ssl.create_default_context(cafile=self.trusted_certificates or None)
        with urllib.request.urlopen(request, timeout=FETCH_TIMEOUT_S, context=context) as response:
            return parse_key_set(response.read(MAX_SET_BYTES))


def parse_key_set(text: bytes) -> list[JsonWebKey]:
    """Raises ValueError."""
    found = json.loads(text)
    keys = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(keys, list) or not all(isinstance(key, dict) for key in keys):
        raise ValueError("the response is no JSON object with a list of keys")
    return keys


class JsonWebKeySet:
    """`fetch` gets the set, off the loop's thread. `run` keeps it up to date until it is
    cancelled.
    """

    def __init__(
        self,
        name: str,
        fetch: Callable[[], Awaitable[list[JsonWebKey]]],
        *,
        refresh_s: float,
        retry_backoff_s: float,
        retry_backoff_max_s: float,
    ) -> None:
        self.keys: list[JsonWebKey] = []
        self._name = name
        self._fetch = fetch
        self._refresh_s = refresh_s
        self._retry_backoff_s = retry_backoff_s
        self._retry_backoff_max_s = max(retry_backoff_s, retry_backoff_max_s)
        self._loop = asyncio.get_running_loop()
        self._fetch_ordered = asyncio.Event()
        self._fetched: asyncio.Future[None] = self._loop.create_future()
        self._is_fetching = False
        self._last_fetch_s = float("-inf")
        self._unknown: OrderedDict[str, float] = OrderedDict()  # key id → when the set was fetched for it

    def has_key(self, key_id: str) -> bool:
        return any(key.get("kid") == key_id for key in self.keys)

    async def run(self) -> None:
        pause_s = self._retry_backoff_s
        while True:
            self._fetch_ordered.clear()
            self._last_fetch_s, self._is_fetching = self._loop.time(), True
            try:
                self.keys = await self._fetch()
            except (OSError, ValueError) as reason:
                logger.warning("cannot fetch the keys of %s: %s; trying again in %.1f s", self._name, reason, pause_s)
                wait_s, pause_s = pause_s, min(pause_s * 2, self._retry_backoff_max_s)
                await asyncio.sleep(wait_s)
                continue
            pause_s, self._is_fetching = self._retry_backoff_s, False
            self._fetched.set_result(None)
            self._fetched = self._loop.create_future()
            await wait_for_event(self._fetch_ordered, self._refresh_s)

    async def wait_for_key(self, key_id: str) -> None:
        """Fetches the set at once if the key is unknown and the set was not fetched for it lately.
        Returns when it is fetched, or after LOGIN_WAIT_S; the key may still be unknown. Returns at
        once if no fetch is in progress or may begin.
        """
        if self.has_key(key_id):
            return
        if self._may_fetch_for(key_id):
            self._fetch_ordered.set()
        elif not self._is_fetching:
            return
        await asyncio.wait([self._fetched], timeout=LOGIN_WAIT_S)

    def _may_fetch_for(self, key_id: str) -> bool:
        now = self._loop.time()
        if len(key_id) > MAX_KEY_ID_LENGTH or now - self._last_fetch_s < MIN_FETCH_INTERVAL_S:
            return False
        if now - self._unknown.get(key_id, float("-inf")) < UNKNOWN_KEY_INTERVAL_S:
            return False
        self._unknown[key_id] = now
        while len(self._unknown) > MAX_UNKNOWN_KEYS:
            self._unknown.popitem(last=False)
        return True
