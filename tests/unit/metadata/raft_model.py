"""A model of the metadata quorum: elections, commits, changes of voters, messages that are late or
lost, crashes and wiped disks.

A `RaftWorld` (`raft_world`) is one immutable state, and `steps` yields every step that can follow;
`raft_search` explores them. Decisions are made by the broker's own functions (`Rules`). A step
checks the invariants and raises `InvariantViolated`.

A vote request stays in flight forever and may be delivered late and repeatedly. Its response is
counted at once or is lost. A pre-vote is one step, because no replica stores it. A fetch is two
independent steps: the leader learns the follower's position, and the follower receives a record.
Records need no value: a leader writes at an offset once in its epoch, so the epoch identifies the
record.
"""

from collections.abc import Callable, Iterator
from functools import partial

from msgspec.structs import replace

from ottla_broker.metadata import raft_rules
from ottla_broker.metadata.metadata_fetch import find_diverging_epoch, truncation_offset
from ottla_broker.metadata.raft_rules import ElectionState, RaftState, Role, VoteRequest
from ottla_broker.metadata.voter_set import ReplicaKey, Voter, has_majority
from tests.unit.metadata.raft_world import (
    Budget,
    Entry,
    Node,
    RaftWorld,
    Resignation,
    Rules,
    SentVoteRequest,
    Voters,
    key,
    world_of,
)

Step = tuple[str, Callable[[], "RaftWorld"]]
"""The step's label, and a function that returns the world after it."""


class InvariantViolated(AssertionError):
    """A step violates an invariant of the quorum."""


def run_steps(world: RaftWorld, *steps_taken: str) -> RaftWorld:
    """Returns the world after the steps with these labels, by the broker's own rules."""
    for label in steps_taken:
        world = next(apply_step for step, apply_step in steps(world, Rules()) if step == label)()
    return world


def led_world(budget: Budget) -> RaftWorld:
    """Returns a world of three voters. Broker 1 leads in epoch 1 and has committed its first
    record.
    """
    return run_steps(
        world_of(3, 3, budget),
        "broker 1: timer expires",
        "broker 1: pre-vote by broker 2",
        "broker 2: vote request of 1 in 1",
        "broker 1: log is synced",
        *(
            f"broker {other}: {label}"
            for other in (2, 3)
            for label in ("hears of epoch from broker 1", "fetches", "has 2")
        ),
    )


def contested_world(budget: Budget) -> RaftWorld:
    """Returns a world of three voters. Broker 1 leads in epoch 3 and has a record of epoch 1 that
    no other broker has; broker 3 has one of epoch 2 instead (figure 8 of the Raft paper)."""
    return run_steps(
        world_of(3, 3, budget),
        *("broker 1: timer expires", "broker 1: pre-vote by broker 2", "broker 2: vote request of 1 in 1"),
        *("broker 1: log is synced", "broker 3: hears of epoch from broker 2"),
        *("broker 3: timer expires", "broker 3: pre-vote by broker 2", "broker 2: vote request of 3 in 2"),
        *("broker 3: log is synced", "broker 1: hears of epoch from broker 3"),
        *("broker 1: timer expires", "broker 1: pre-vote by broker 2", "broker 2: vote request of 1 in 3"),
    )


# --- steps


def steps(world: RaftWorld, rules: Rules) -> Iterator[Step]:
    """Yields every step that is possible in a world. Some change nothing."""
    for at, node in enumerate(world.nodes):
        yield from leader_steps(world, at, rules) if node.leads else follower_steps(world, at, rules)
        yield from failure_steps(world, at, rules)
        for other in range(len(world.nodes)):
            if other != at:
                yield from peer_steps(world, at, other, rules)
    for message in world.sent:
        for at, node in enumerate(world.nodes):
            if isinstance(message, Resignation):
                if message.epoch < node.raft.epoch:
                    continue
                next_state = raft_rules.end_quorum_epoch(node.raft, *message, node.replica)
                yield (
                    f"{broker_name(node)}: EndQuorumEpoch {message.epoch}",
                    partial(with_raft, world, at, next_state, rules),
                )
            elif message.request.candidate.broker != node.key.broker and message.request.epoch >= node.raft.epoch:
                for lost in (False, True):
                    candidate, epoch = message.request.candidate.broker, message.request.epoch
                    label = f"{broker_name(node)}: vote request of {candidate} in {epoch}"
                    yield (
                        label + ", answer lost" * lost,
                        partial(deliver_vote_request, world, at, message, rules, lost=lost),
                    )


def follower_steps(world: RaftWorld, at: int, rules: Rules) -> Iterator[Step]:
    node = world.nodes[at]
    yield (
        f"{broker_name(node)}: timer expires",
        partial(with_raft, world, at, rules.expire(node.raft, node.replica), rules),
    )
    if node.stored != node.raft.stored:
        stored = node._replace(stored=node.raft.stored)
        yield f"{broker_name(node)}: quorum-state is synced", partial(world.with_node, at, stored)


def leader_steps(world: RaftWorld, at: int, rules: Rules) -> Iterator[Step]:
    node = world.nodes[at]
    if node.synced < len(node.log):
        synced = node._replace(synced=len(node.log))
        yield f"{broker_name(node)}: log is synced", partial(advance, world.with_node(at, synced), at, rules)
    if world.budget.records:
        yield f"{broker_name(node)}: appends", partial(append, world.spend(records=1), at, Entry(node.raft.epoch))
    for other in world.nodes if world.budget.changes else ():
        new_voters = node.voters ^ {other.key}
        if other is not node and can_change_voters_to(node, new_voters, rules):
            entry = Entry(node.raft.epoch, new_voters)
            yield (
                f"{broker_name(node)}: voters {broker_list(new_voters)}",
                partial(append, world.spend(changes=1), at, entry),
            )
    if world.budget.resignations:
        others = tuple(sorted(node.voters - {node.key}))
        for successors in sorted({others, others[::-1]}):
            message = Resignation(node.raft.epoch, node.key.broker, successors)
            next_state = world.spend(resignations=1)._replace(sent=world.sent | {message})
            yield (
                f"{broker_name(node)}: resigns",
                partial(with_raft, next_state, at, raft_rules.resign(node.raft), rules),
            )


def can_change_voters_to(node: Node, new_voters: Voters, rules: Rules) -> bool:
    return rules.can_change_voters(
        tuple(Voter(*voter) for voter in sorted(node.voters)),
        tuple(Voter(*voter) for voter in sorted(new_voters)),
        voters_offset=node.voters_offset,
        high_watermark=node.high_watermark,
        epoch_start_offset=node.epoch_start,
    )


def peer_steps(world: RaftWorld, at: int, other: int, rules: Rules) -> Iterator[Step]:
    """Steps of a node and one peer: epochs observed, pre-votes, truncation and fetches."""
    node, peer = world.nodes[at], world.nodes[other]
    if peer.raft.epoch > node.raft.epoch or (peer.leads and peer.raft.epoch == node.raft.epoch):
        next_state = raft_rules.observe_epoch(node.raft, peer.raft.epoch, peer.raft.leader, node.replica)
        yield (
            f"{broker_name(node)}: hears of epoch from {broker_name(peer)}",
            partial(with_raft, world, at, next_state, rules),
        )
    if node.raft.role is Role.PROSPECTIVE and peer.key in node.voters:
        yield (
            f"{broker_name(node)}: pre-vote by {broker_name(peer)}",
            partial(exchange_pre_vote, world, at, other, rules),
        )
    follows = node.raft.role is Role.FOLLOWER and peer.leads
    if not follows or (node.raft.epoch, node.raft.leader) != (peer.raft.epoch, peer.key.broker):
        return
    synced = world.with_node(at, node._replace(synced=len(node.log)))
    diverging = find_diverging_epoch(peer.epochs, len(peer.log), node.log_end)
    if diverging is not None:
        cut = truncation_offset(node.epochs, len(node.log), diverging)
        yield f"{broker_name(node)}: truncates to {cut}", partial(truncate, synced, at, cut)
        return
    acknowledged = dict(peer.acknowledged)
    if acknowledged.get(node.key) != len(node.log):
        acknowledged[node.key] = len(node.log)
        acknowledging = synced.with_node(other, peer._replace(acknowledged=frozenset(acknowledged.items())))
        yield f"{broker_name(node)}: has {len(node.log)}", partial(advance, acknowledging, other, rules)
    if len(node.log) < len(peer.log) or node.high_watermark < peer.high_watermark or not node.raft.hears_leader:
        yield f"{broker_name(node)}: fetches", partial(fetch, synced, at, peer)


def failure_steps(world: RaftWorld, at: int, rules: Rules) -> Iterator[Step]:
    node = world.nodes[at]
    if world.budget.crashes:
        for kept in sorted({node.synced, len(node.log)}):
            raft = rules.restart(node.stored, node.key)
            started = Node(node.key, raft, node.stored, node.log[:kept], kept, 0, node.process + 1)
            yield f"{broker_name(node)}: restarts with {kept}", partial(world.spend(crashes=1).with_node, at, started)
    if world.budget.wipes and can_lose_disk(world, node):
        disk = node.key.directory.int - node.key.broker * 100 + (1 if rules.directories_differ else 0)
        empty = Node(key(node.key.broker, disk), RaftState(), ElectionState(), process=node.process + 1)
        yield f"{broker_name(node)}: loses its disk", partial(world.spend(wipes=1).with_node, at, empty)


def can_lose_disk(world: RaftWorld, node: Node) -> bool:
    """True if a majority of each voter set that may be in effect keeps its disk."""
    intact = frozenset(one.key for one in world.nodes if one.log) - {node.key}
    sets = {e.voters for one in world.nodes for e in one.log[one.voters_offset :] if e.voters is not None}
    committed = [e.voters for e, _ in world.committed if e.voters is not None]
    return all(has_majority(intact, voters) for voters in (*sets, committed[-1]))


# --- effects of steps, and their invariants


def with_raft(world: RaftWorld, at: int, raft: RaftState, rules: Rules) -> RaftWorld:
    """Gives a replica a new state and does what that state requires: vote requests, the first
    record of a leader. `failed_elections` is dropped, because only timers use it.
    """
    node, raft = world.nodes[at], replace(raft, failed_elections=0)
    if raft == node.raft:
        return world
    if raft.epoch < node.raft.epoch:
        raise InvariantViolated(f"{broker_name(node)} goes back from epoch {node.raft.epoch} to {raft.epoch}")
    changed = node._replace(raft=raft, stored=raft.stored if rules.syncs_first else node.stored)
    world = world.with_node(at, changed)
    if raft.epoch > node.raft.epoch and raft.role in (Role.CANDIDATE, Role.LEADER):
        check_no_disruption(world, at)
        world = world._replace(votes=add_vote(world.votes, raft.epoch, node.key, node.key))
    if raft.role is Role.CANDIDATE:
        sent_request = SentVoteRequest(VoteRequest(node.key, raft.epoch, node.log_end), node.process)
        world = world._replace(sent=world.sent | {sent_request})
    return begin_epoch(world, at) if raft.role is Role.LEADER and not node.leads else world


def check_no_disruption(world: RaftWorld, at: int) -> None:
    """No voter becomes a candidate while a majority of its voter set hears a leader. Not checked
    with more than three voters, where pre-votes from before they heard the leader may count.
    """
    node = world.nodes[at]
    for leader in world.nodes:
        if leader.leads and leader.key != node.key and leader.voters == node.voters and len(node.voters) <= 3:
            led = (leader.raft.epoch, leader.key.broker)
            hearers = [n.key for n in world.nodes if n.raft.hears_leader and (n.raft.epoch, n.raft.leader) == led]
            if has_majority({leader.key, *hearers} - {node.key}, node.voters):
                raise InvariantViolated(
                    f"{broker_name(node)} becomes a candidate although a majority hears {broker_name(leader)}"
                )


def deliver_vote_request(
    world: RaftWorld, at: int, sent_request: SentVoteRequest, rules: Rules, *, lost: bool
) -> RaftWorld:
    """A voter handles a vote request. The candidate counts the response unless it is lost."""
    node, request = world.nodes[at], sent_request.request
    raft, granted = rules.answer_vote(node.raft, request, node.replica)
    world = with_raft(world, at, raft, rules)
    if not granted:
        return world
    world = world._replace(votes=add_vote(world.votes, request.epoch, node.key, request.candidate))
    for sender, candidate in enumerate(world.nodes):
        if not lost and (candidate.key, candidate.process) == (request.candidate, sent_request.process):
            request_state = RaftState(Role.CANDIDATE, request.epoch)
            counted = rules.count_vote(candidate.raft, node.key, request_state, granted=True, me=candidate.replica)
            return with_raft(world, sender, counted, rules)
    return world


def exchange_pre_vote(world: RaftWorld, at: int, other: int, rules: Rules) -> RaftWorld:
    node, peer = world.nodes[at], world.nodes[other]
    request = VoteRequest(node.key, node.raft.epoch, node.log_end, is_pre_vote=True)
    raft, granted = rules.answer_vote(peer.raft, request, peer.replica)
    world = with_raft(world, other, raft, rules)
    return with_raft(
        world, at, rules.count_vote(node.raft, peer.key, node.raft, granted=granted, me=node.replica), rules
    )


def add_vote(
    votes: frozenset[tuple[int, ReplicaKey, ReplicaKey]], epoch: int, voter: ReplicaKey, candidate: ReplicaKey
) -> frozenset[tuple[int, ReplicaKey, ReplicaKey]]:
    for vote in votes:
        if vote[:2] == (epoch, voter) and vote[2] != candidate:
            raise InvariantViolated(
                f"broker {voter.broker} votes in epoch {epoch} for {vote[2].broker} and for {candidate.broker}"
            )
    return votes | {(epoch, voter, candidate)}


def begin_epoch(world: RaftWorld, at: int) -> RaftWorld:
    """A new leader appends the first record of its epoch. It must be the only leader of that epoch
    and have all committed records.
    """
    node = world.nodes[at]
    me = (node.raft.epoch, node.key, node.process)
    for other in world.leaders:
        if other[0] == me[0] and other != me:
            raise InvariantViolated(
                f"two leaders in epoch {me[0]}: brokers {other[1].broker} and {me[1].broker}, or one of them twice"
            )
    before = [entry for entry, epoch in world.committed if epoch < node.raft.epoch]
    if list(node.log[: len(before)]) != before:
        raise InvariantViolated(f"the leader of epoch {node.raft.epoch} lacks committed records")
    leading = node._replace(epoch_start=len(node.log), acknowledged=frozenset())
    world = world.with_node(at, leading)._replace(leaders=world.leaders | {me})
    return append(world, at, Entry(node.raft.epoch))


def append(world: RaftWorld, at: int, entry: Entry) -> RaftWorld:
    node = world.nodes[at]
    return world.with_node(at, node._replace(log=(*node.log, entry)))


def advance(world: RaftWorld, at: int, rules: Rules) -> RaftWorld:
    """Advances the leader's high watermark and commits the records below it."""
    node = world.nodes[at]
    to = rules.next_high_watermark(
        dict(node.acknowledged) | {node.key: node.synced},
        node.voters,
        high_watermark=node.high_watermark,
        epoch_start_offset=node.epoch_start,
    )
    shared = [entry for entry, _ in world.committed[:to]]
    if list(node.log[: len(shared)]) != shared:
        raise InvariantViolated(f"epoch {node.raft.epoch} commits other records than were committed before")
    new = tuple((entry, node.raft.epoch) for entry in node.log[len(shared) : to])
    return world.with_node(at, node._replace(high_watermark=to))._replace(committed=world.committed + new)


def truncate(world: RaftWorld, at: int, offset: int) -> RaftWorld:
    node = world.nodes[at]
    if offset < node.high_watermark:
        raise InvariantViolated(
            f"{broker_name(node)} truncates to {offset}, below its high watermark {node.high_watermark}"
        )
    if offset >= len(node.log):
        raise InvariantViolated(f"{broker_name(node)} truncates nothing")
    return world.with_node(at, node._replace(log=node.log[:offset], synced=min(node.synced, offset)))


def fetch(world: RaftWorld, at: int, leader: Node) -> RaftWorld:
    """A follower receives the next record, and the leader's high watermark once the leader has
    committed a record of its epoch.
    """
    node = world.nodes[at]
    raft = replace(raft_rules.hear_leader(node.raft), failed_elections=0)
    log = node.log + leader.log[len(node.log) : len(node.log) + 1]
    shared = leader.high_watermark if leader.high_watermark > leader.epoch_start else 0
    high_watermark = max(node.high_watermark, min(shared, len(log)))
    return world.with_node(at, node._replace(raft=raft, log=log, high_watermark=high_watermark))


def broker_name(node: Node) -> str:
    return f"broker {node.key.broker}"


def broker_list(voters: Voters) -> str:
    return ", ".join(str(broker) for broker, _ in sorted(voters))
