"""The transaction coordinator on virtual time: writes, failover, timeouts and expiry."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla_broker.coordination.records import TRANSACTION_STATE_TOPIC
from ottla_broker.same_turn import SameTurnTask
from ottla_broker.transactions.transaction_config import TransactionConfig
from ottla_broker.transactions.transaction_coordinator import END_WAIT_S, TransactionCoordinator
from ottla_broker.transactions.transaction_metadata import (
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransactionState,
    TxnPartition,
)
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.sim.virtual_loop import run_in_virtual_time
from tests.unit.coordination.memory_journal import MemoryJournal, virtual_runtime
from tests.unit.kafka_errors import error_of

T0 = TxnPartition("t", 0)
ID = "tx"


class CoordinatorBroker:
    """A coordinator with one partition; `fail_over` replaces it by another. `markers`: the markers
    that they have sent; `can_write_markers`: cleared while no partition leader answers.
    """

    def __init__(self, version: int = 2) -> None:
        self.journal = MemoryJournal(topic=TRANSACTION_STATE_TOPIC)
        self.markers: list[tuple[TransactionMetadata, int]] = []
        self.can_write_markers = asyncio.Event()
        self.can_write_markers.set()
        self.version = version
        self._next_id = 100
        self.coordinator = self._new_coordinator()

    def _new_coordinator(self) -> TransactionCoordinator:
        return TransactionCoordinator(
            virtual_runtime(),
            TransactionConfig(transactional_id_expiration_ms=3_600_000),
            lambda: 1,
            lambda: True,
            self._generate_producer_id,
            lambda: self.version,
            self._write_markers,
        )

    async def _generate_producer_id(self) -> int:
        self._next_id += 1
        return self._next_id

    async def _write_markers(self, decided: TransactionMetadata, coordinator_epoch: int) -> None:
        await self.can_write_markers.wait()
        self.markers.append((decided, coordinator_epoch))

    async def start(self) -> None:
        await self.coordinator.load(self.journal)

    async def fail_over(self) -> None:
        self.coordinator.close()
        self.coordinator = self._new_coordinator()
        self.journal.epoch += 1
        await self.start()

    async def begin(self) -> ProducerIdAndEpoch:
        producer = await self.coordinator.init_producer_id(ID, 60_000, None)
        await self.coordinator.add_partitions(ID, producer, [T0], client_version=self.version)
        return producer

    async def end(self, producer: ProducerIdAndEpoch, *, commit: bool = True) -> ProducerIdAndEpoch:
        return await self.coordinator.end_transaction(ID, producer, commit=commit, client_version=self.version)

    def state(self) -> TransactionState:
        return self.coordinator.describe(ID).state


def run_with_broker(test: Callable[[CoordinatorBroker], Awaitable[None]], version: int = 2) -> None:
    """Runs a test on virtual time. `version`: the finalized transaction.version."""

    async def main() -> None:
        broker = CoordinatorBroker(version)
        await broker.start()
        try:
            await test(broker)
        finally:
            broker.coordinator.close()

    run_in_virtual_time(main())


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_decision_is_completed_once_markers_are_written(version: int, commit: bool) -> None:
    async def test(broker: CoordinatorBroker) -> None:
        producer = await broker.begin()
        broker.can_write_markers.clear()
        following = await broker.end(producer, commit=commit)
        assert following == (producer.producer_id, producer.epoch + (1 if version == 2 else 0))
        assert broker.state() is (TransactionState.prepare_commit if commit else TransactionState.prepare_abort)
        adding = broker.coordinator.add_partitions(ID, following, [T0], client_version=version)
        assert await error_of(adding) is ErrorCode.concurrent_transactions
        broker.can_write_markers.set()
        await broker.coordinator.wait_until_idle(ID, 1)
        assert broker.state() is (TransactionState.complete_commit if commit else TransactionState.complete_abort)
        await broker.coordinator.add_partitions(ID, following, [T0], client_version=version)
        ((decided, epoch),) = broker.markers
        assert (decided.partitions, decided.producer, epoch) == (frozenset({T0}), following, 0)

    run_with_broker(test, version)


def test_the_response_to_an_end_comes_before_the_markers() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        markers_at_response: list[int] = []
        end = SameTurnTask(broker.end(await broker.begin()))
        end.on_complete = lambda _: markers_at_response.append(len(broker.markers))
        await end
        await broker.coordinator.wait_until_idle(ID, 1)
        assert broker.state() is TransactionState.complete_commit
        assert (markers_at_response, len(broker.markers)) == ([0], 1)

    run_with_broker(test)


def test_adding_partitions_waits_for_the_end_of_the_transaction_before() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        producer = await broker.begin()
        broker.can_write_markers.clear()
        following = await broker.end(producer)
        asyncio.get_running_loop().call_later(END_WAIT_S / 2, broker.can_write_markers.set)
        await broker.coordinator.add_partitions(ID, following, [T0], client_version=2)
        assert broker.state() is TransactionState.ongoing and len(broker.markers) == 1

    run_with_broker(test)


def test_a_fenced_producer_does_not_wait_for_the_end() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        producer = await broker.begin()
        broker.can_write_markers.clear()
        await broker.end(producer)
        began_s = asyncio.get_running_loop().time()
        fenced = ProducerIdAndEpoch(producer.producer_id, producer.epoch - 1)
        adding = broker.coordinator.add_partitions(ID, fenced, [T0], client_version=2)
        assert await error_of(adding) is ErrorCode.producer_fenced
        assert asyncio.get_running_loop().time() == began_s

    run_with_broker(test)


def test_next_coordinator_completes_the_decision_of_a_failed_one() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        producer = await broker.begin()
        broker.can_write_markers.clear()
        await broker.end(producer)
        await broker.fail_over()
        assert broker.state() is TransactionState.prepare_commit
        assert await error_of(broker.end(producer)) is ErrorCode.concurrent_transactions
        broker.can_write_markers.set()
        await broker.coordinator.wait_until_idle(ID, 1)
        assert broker.state() is TransactionState.complete_commit
        assert [(decided.commits, epoch) for decided, epoch in broker.markers] == [(True, 1)]
        await broker.end(producer)  # the answer was lost

    run_with_broker(test)


def test_coordinator_that_is_replaced_while_it_writes_a_completion_leaves_no_unhandled_error() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        producer = await broker.begin()
        broker.can_write_markers.clear()
        await broker.end(producer)
        broker.journal.delay_s = 1
        broker.can_write_markers.set()
        await asyncio.sleep(0.5)  # the completion is being written
        await broker.fail_over()
        await asyncio.sleep(2)
        assert failures == []
        assert broker.state() is TransactionState.complete_commit

    run_with_broker(test)


def test_open_transaction_survives_a_change_of_coordinators() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        producer = await broker.begin()
        await broker.fail_over()
        assert broker.coordinator.find_missing_partitions(ID, producer, [T0]) == frozenset()
        await broker.end(producer)

    run_with_broker(test)


def test_failed_write_changes_nothing() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        producer = await broker.begin()
        broker.journal.failure = KafkaError(ErrorCode.not_enough_replicas)
        assert await error_of(broker.end(producer)) is ErrorCode.coordinator_not_available
        assert broker.state() is TransactionState.ongoing
        assert await error_of(broker.coordinator.init_producer_id("new", 1_000, None)) is (
            ErrorCode.coordinator_not_available
        )
        broker.journal.failure = None
        assert (await broker.coordinator.init_producer_id("new", 1_000, None)).epoch == 0
        await broker.end(producer)
        await broker.coordinator.wait_until_idle(ID, 1)
        assert broker.state() is TransactionState.complete_commit

    run_with_broker(test)


def test_second_request_is_refused_while_the_first_is_being_written() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        broker.journal.delay_s = 1
        first = asyncio.ensure_future(broker.coordinator.init_producer_id(ID, 60_000, None))
        await asyncio.sleep(0.5)
        second = broker.coordinator.init_producer_id(ID, 60_000, None)
        assert await error_of(second) is ErrorCode.concurrent_transactions
        assert (await first).epoch == 0

    run_with_broker(test)


@pytest.mark.parametrize("version", [0, 2])
def test_transaction_beyond_its_timeout_is_aborted_and_its_producer_fenced(version: int) -> None:
    async def test(broker: CoordinatorBroker) -> None:
        producer = await broker.begin()
        await asyncio.sleep(75)
        assert broker.state() is TransactionState.complete_abort
        ((decided, _),) = broker.markers
        assert (decided.commits, decided.producer_epoch) == (False, producer.epoch + 1)
        adding = broker.coordinator.add_partitions(ID, producer, [T0], client_version=version)
        assert await error_of(adding) is ErrorCode.producer_fenced

    run_with_broker(test, version)


def test_transaction_in_two_phases_has_no_timeout_also_after_a_change_of_coordinators() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        producer = await broker.coordinator.init_producer_id(ID, 1, None, in_two_phases=True)
        await broker.coordinator.add_partitions(ID, producer, [T0], client_version=2)
        await broker.fail_over()
        await asyncio.sleep(60 * 24 * 3_600)  # longer than its stored timeout, 2^31 - 1 ms
        assert broker.state() is TransactionState.ongoing and not broker.markers
        await broker.end(producer)
        await broker.coordinator.wait_until_idle(ID, 1)
        assert broker.state() is TransactionState.complete_commit

    run_with_broker(test)


def test_new_instance_waits_for_the_end_of_the_former_ones_transaction() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        former = await broker.begin()
        beginning = broker.coordinator.init_producer_id(ID, 60_000, None)
        assert await error_of(beginning) is ErrorCode.concurrent_transactions
        await broker.coordinator.wait_until_idle(ID, 1)
        current = await broker.coordinator.init_producer_id(ID, 60_000, None)
        assert current == (former.producer_id, former.epoch + 2)
        assert await error_of(broker.end(former)) is ErrorCode.producer_fenced

    run_with_broker(test)


def test_idle_id_expires_and_stays_expired_after_a_change_of_coordinators() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        await broker.coordinator.init_producer_id("idle", 60_000, None)
        await asyncio.sleep(2 * 3_600 + 100)
        listed = [transactional_id for transactional_id, _ in broker.coordinator.list_transactions()]
        assert listed == []
        await broker.fail_over()
        assert list(broker.coordinator.list_transactions()) == []

    run_with_broker(test)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_timeout_out_of_bounds_is_refused(timeout_ms: int) -> None:
    async def test(broker: CoordinatorBroker) -> None:
        beginning = broker.coordinator.init_producer_id(ID, timeout_ms, None)
        assert await error_of(beginning) is ErrorCode.invalid_transaction_timeout

    run_with_broker(test)
