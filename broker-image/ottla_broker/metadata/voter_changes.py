"""Changes of the metadata log's voters that an administrator requests of its leader (KIP-853).

Each waits for the change before it. Meanwhile another change may be appended, also by the leader
itself, so every attempt starts from the voters of the moment. All raise KAFKA_STORAGE_ERROR when
the leader's log fails.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from ottla_broker.metadata.features import KRAFT_VERSION
from ottla_broker.metadata.leader_state import LeaderState
from ottla_broker.metadata.voter_set import ReplicaKey, Voter, VoterSet, replace_voter, without_voter
from ottla_broker.runtime import uuid_text
from ottla_broker.wire.errors import ErrorCode, KafkaError

CHECK_INTERVAL_S: Final = 0.1
CAUGHT_UP_WITHIN_S: Final = 2.0


async def add_voter(leader: LeaderState, voter: Voter, timeout_s: float) -> None:
    """Waits until the replica has caught up, adds it, and returns when that is committed. Raises
    DUPLICATE_VOTER, REQUEST_TIMED_OUT, NOT_CONTROLLER."""

    def propose(voters: VoterSet) -> VoterSet | None:
        if any(known.broker == voter.broker for known in voters):
            raise KafkaError(ErrorCode.duplicate_voter, f"broker {voter.broker} is a voter already")
        return (*voters, voter) if leader.is_caught_up(voter.key, CAUGHT_UP_WITHIN_S) else None

    await _change(
        leader,
        propose,
        timeout_s,
        f"{describe_replica(voter.key)} has not caught up, or a change of voters is not committed",
    )


async def remove_voter(leader: LeaderState, key: ReplicaKey, timeout_s: float) -> None:
    """Removes a voter, and returns when that is committed. Raises VOTER_NOT_FOUND; INVALID_REQUEST
    for the only voter; REQUEST_TIMED_OUT, NOT_CONTROLLER.
    """

    def propose(voters: VoterSet) -> VoterSet:
        remaining = without_voter(voters, key)
        if remaining == voters:
            raise KafkaError(ErrorCode.voter_not_found, f"{describe_replica(key)} is no voter")
        if not remaining:
            raise KafkaError(ErrorCode.invalid_request, f"{describe_replica(key)} is the only voter")
        return remaining

    await _change(leader, propose, timeout_s, "a change of the voters is not committed")


async def update_voter(leader: LeaderState, voter: Voter, timeout_s: float) -> None:
    """Changes a voter's address and versions, and returns when that is committed. Raises
    INVALID_REQUEST for a voter that does not support the finalized `kraft.version`;
    VOTER_NOT_FOUND, REQUEST_TIMED_OUT, NOT_CONTROLLER.
    """
    level, (lowest, highest) = KRAFT_VERSION.default, voter.kraft_versions
    if not lowest <= level <= highest:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"broker {voter.broker} supports {lowest} to {highest} of {KRAFT_VERSION.name}, which is {level}",
        )

    def propose(voters: VoterSet) -> VoterSet:
        if all(known.key != voter.key for known in voters):
            raise KafkaError(ErrorCode.voter_not_found, f"{describe_replica(voter.key)} is no voter")
        return replace_voter(voters, voter)

    await _change(leader, propose, timeout_s, "a change of the voters is not committed")


async def _change(
    leader: LeaderState, propose: Callable[[VoterSet], VoterSet | None], timeout_s: float, obstacle: str
) -> None:
    """Appends the voter set that `propose` makes of the present one, and returns when it is
    committed. `propose` returns None while the change has to wait. `obstacle`: why it has to wait,
    for the error at the timeout.
    """
    try:
        async with asyncio.timeout(timeout_s):
            while not leader.is_over:
                proposed = propose(leader.voters)
                if proposed == leader.voters:  # a repeated request
                    return
                if proposed is not None and leader.can_change_voters(proposed):
                    await leader.change_voters(proposed)
                    return
                await leader.wait_for_change(CHECK_INTERVAL_S)
    except TimeoutError:
        raise KafkaError(ErrorCode.request_timed_out, f"{obstacle} after {timeout_s:g} s") from None
    raise KafkaError(ErrorCode.not_controller, "this broker no longer leads the metadata log")


def describe_replica(key: ReplicaKey) -> str:
    return f"broker {key.broker} with directory id {uuid_text(key.directory)}"
