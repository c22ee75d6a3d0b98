"""Streams groups under random members: joins, deaths, new topics and failovers. Clients take their
time to give tasks up, and lose responses.

Invariants: no task is active at two members, no process has two copies of a task. Each rule that
keeps them is disabled in turn, and a check must detect that.
"""

from random import Random

import pytest

from ottla_broker.coordination.group_config import StreamsGroupConfig
from ottla_broker.coordination.streams_group import StreamsGroupState
from ottla_broker.coordination.streams_tasks import Task, tasks_of
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.sim.disabled_streams_rules import RULES
from tests.unit.coordination.streams_group_simulation import Client, StreamsGroupSimulation

SEEDS = range(300)
STEPS = 150


def run_at_random(seed: int) -> None:
    """Raises AssertionError if an invariant is violated, or the group does not become stable with
    all of its tasks."""
    random = Random(seed)
    group = StreamsGroupSimulation(
        StreamsGroupConfig(
            num_standby_replicas=random.randrange(3), initial_rebalance_delay_ms=0, assignment_interval_ms=0
        )
    )
    group.metadata.set_partition_counts(lines=random.randrange(1, 6))
    for step in range(STEPS):
        action = random.random()
        if (action < 0.08 and len(group.clients) < 5) or not group.clients:
            client = Client(f"m{step}", random.choice("pqr"))
            group.clients[client.id] = client
            group.send_heartbeat(client)
        elif action < 0.12:
            client_id = random.choice(sorted(group.clients))
            del group.clients[client_id]
            group.fence(client_id)
        elif action < 0.15:
            group.metadata.set_partition_counts(counts=group.metadata.topics["lines"])
        elif action < 0.2:
            group.fail_over()
        else:
            client = random.choice(sorted(group.clients.values(), key=lambda it: it.id))
            if action < 0.4:
                client.close()
            else:
                send_at_random(group, client, random)
        group.check_tasks()
    group.clients["last"] = Client("last", "p")
    group.metadata.set_partition_counts(counts=group.metadata.topics["lines"])
    for _ in range(8):
        for client in group.clients.values():
            client.close()
            send_or_start_again(group, client)
            group.check_tasks()
    assert group.group.state is StreamsGroupState.stable
    running = {task for client in group.clients.values() for task in tasks_of(client.assigned.active)}
    assert running == {Task("0", at) for at in range(group.metadata.topics["lines"])}


def send_at_random(group: StreamsGroupSimulation, client: Client, random: Random) -> None:
    reports, at_once, is_lost = (random.random() < share for share in (0.8, 0.3, 0.1))
    send_or_start_again(group, client, reports=reports, at_once=at_once, is_lost=is_lost)


def send_or_start_again(group: StreamsGroupSimulation, client: Client, **how: bool) -> None:
    """A client that has lost two responses in a row may be fenced."""
    try:
        group.send_heartbeat(client, **how)
    except KafkaError as reason:
        assert reason.code is ErrorCode.fenced_member_epoch and client.has_lost_response
        client.start_again()


@pytest.mark.parametrize("seed", SEEDS)
def test_no_task_is_active_twice_or_has_two_copies_in_one_process(seed: int) -> None:
    run_at_random(seed)


@pytest.mark.parametrize(
    ("rule", "violation"),
    [
        ("tasks assigned before release", "runs in"),
        ("copies of a task in one process", "has copies of"),
        ("task revocation not awaited", "runs in"),
    ],
)
def test_a_disabled_rule_is_detected(rule: str, violation: str) -> None:
    violations = []
    with RULES[rule]():
        for seed in SEEDS[:20]:
            try:
                run_at_random(seed)
            except AssertionError as reason:
                violations.append(str(reason))
    assert any(violation in reason for reason in violations), violations
