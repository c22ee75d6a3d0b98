"""Rule 18: no input crashes the broker, hangs another connection, or makes the broker take more
memory than its limits allow.

`OTTLA_FUZZ_SECONDS` gives each run more time than the few seconds of `make test`, and
`OTTLA_FUZZ_SEED` another seed.
"""

import asyncio
import os
from functools import partial
from pathlib import Path

import pytest
import uvloop

from ottla_broker.connection_limits import ConnectionLimits
from tests.brokers import run_ottla_broker
from tests.clients.fuzz import fuzz
from tests.clients.request_recorder import record_requests, run_typical_session
from tests.ports import free_port
from tests.unit.api.brokers import SmallBroker, create_server, start_listening

SECONDS = float(os.environ.get("OTTLA_FUZZ_SECONDS", "8"))
SEED = int(os.environ.get("OTTLA_FUZZ_SEED", "1"))
MIN_REQUESTS = 600  # even where the machine is slow
MOST_GROWTH_KIB = 200 * 1024


@pytest.mark.slow
def test_rule_18_fuzzed_requests_hang_nothing_and_leave_no_memory_allocated_in_a_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All memory that is accounted to connections is released."""

    async def run() -> None:
        broker = SmallBroker(tmp_path)
        broker.add_topic("fuzz")
        server = create_server(broker, ConnectionLimits(request_bytes=1 << 20, all_requests_bytes=4 << 20))
        port = await start_listening(server)

        def watch() -> None:
            assert server.request_memory.allocated_bytes <= (4 << 20) + (1 << 20)
            assert len(server.connections) <= 8

        result = await fuzz("127.0.0.1", port, SECONDS, SEED, watch, at_least=MIN_REQUESTS)
        with capsys.disabled():
            print(f"\nseed {SEED}: {result}")
        assert result.answered > result.request_count // 10
        assert not result.hung
        assert result.request_count >= MIN_REQUESTS
        async with asyncio.timeout(10):
            while server.connections:  # noqa: ASYNC110 (there is no event to wait for)
                await asyncio.sleep(0.01)
        assert (server.request_memory.allocated_bytes, server.response_memory.allocated_bytes) == (0, 0)
        await server.close()
        broker.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def test_rule_18_fuzzed_requests_neither_crash_nor_hang_nor_bloat_a_broker(capsys: pytest.CaptureFixture[str]) -> None:
    relay = free_port()
    advertised = f"PLAINTEXT://127.0.0.1:{relay}"
    with run_ottla_broker(auto_create_topics_enable="false", advertised_listeners=advertised) as broker:
        session = partial(run_typical_session, f"127.0.0.1:{relay}", "fuzz")
        requests = asyncio.run(record_requests(broker.port, relay, session))
        kinds = {request[:4] for request in requests}
        assert len(kinds) > 20, "requests of many APIs are recorded, and of some in several versions"
        before = broker.resident_memory_kib()
        result = asyncio.run(fuzz("127.0.0.1", broker.port, SECONDS, SEED, recorded=requests, at_least=MIN_REQUESTS))
        with capsys.disabled():
            print(f"\nseed {SEED}: {result}; {len(requests)} requests of {len(kinds)} kinds were recorded", end="; ")
            print(f"resident memory {before} KiB before, {broker.resident_memory_kib()} KiB after")
        assert not result.hung
        assert result.request_count >= MIN_REQUESTS
        assert broker.is_running
        assert broker.resident_memory_kib() - before < MOST_GROWTH_KIB
        assert "Traceback" not in broker.log_tail(1 << 28)  # a bug; malformed requests are logged in one line
