"""How long requests take, as connections and the turn of Produce requests count it."""

from ottla_broker.request_times import ApiTimes
from ottla_broker.server import Server
from ottla_broker.wire.api_keys import ApiKey
from tests.unit.api.brokers import RawConnection, SmallBroker, batch, create_server, start_listening
from tests.unit.api.requests import fetch_request
from tests.unit.async_tests import wait_until
from tests.unit.server.connections import broker_test
from tests.unit.server.turn_producer import Producer

FETCH_VERSION = 12


def counts(server: Server, api: int) -> dict[str, int]:
    return {phase: one.count for phase, one in server.dispatcher.request_times.by_api.get(api, ApiTimes()).phases()}


@broker_test
async def test_each_request_of_a_turn_is_counted_once(broker: SmallBroker) -> None:
    broker.add_topic("a", 2)
    server = create_server(broker)
    producer = await Producer.open(await start_listening(server))
    producer.send(*[(number % 2, batch(b"%d" % number)) for number in range(6)])
    await producer.receive(6)
    assert counts(server, ApiKey.PRODUCE) == {"queue": 7, "local": 7, "remote": 0, "send": 0, "total": 7}
    times = server.dispatcher.request_times.by_api[ApiKey.PRODUCE]
    assert times.total.sum_s >= times.local.sum_s > 0
    await server.close()


@broker_test
async def test_wait_of_a_fetch_is_its_remote_time(broker: SmallBroker) -> None:
    broker.add_topic("a", 1)
    server = create_server(broker)
    port = await start_listening(server)
    consumer, producer = await RawConnection.open(port), await Producer.open(port)
    (accepted,) = [one for one in server.connections if one.state.port == consumer.writer.get_extra_info("sockname")[1]]
    consumer.send(ApiKey.FETCH, FETCH_VERSION, 1, fetch_request({("a", 0): 1}, wait_ms=60_000, min_bytes=1))
    await wait_until(lambda: [one.api for one in accepted.waiting_requests()] == [ApiKey.FETCH])
    assert counts(server, ApiKey.FETCH)["total"] == 0
    await producer.produce((0, batch(b"x")))
    await consumer.receive()
    assert counts(server, ApiKey.FETCH) == {"queue": 1, "local": 1, "remote": 1, "send": 0, "total": 1}
    assert not list(accepted.waiting_requests())
    times = server.dispatcher.request_times.by_api[ApiKey.FETCH]
    assert times.total.sum_s >= times.remote.sum_s > 0
    await server.close()


@broker_test
async def test_request_behind_a_fetch_that_waits_has_queue_time(broker: SmallBroker) -> None:
    broker.add_topic("a", 1)
    server = create_server(broker)
    client = await RawConnection.open(await start_listening(server))
    fetch = fetch_request({("a", 0): 0}, wait_ms=30, min_bytes=1)
    client.send(ApiKey.FETCH, FETCH_VERSION, 1, fetch)
    client.send(ApiKey.FETCH, FETCH_VERSION, 2, fetch)
    await client.receive()
    await client.receive()
    assert server.dispatcher.request_times.by_api[ApiKey.FETCH].queue.sum_s > 0
    await server.close()
