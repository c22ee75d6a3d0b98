"""Where the leader of the metadata log can be reached."""

from ottla_broker.metadata.metadata_fetch import LeaderAndEpoch
from ottla_broker.metadata.voter_history import VoterHistory
from ottla_broker.metadata.voter_set import QuorumEndpoint


class LeaderEndpoints:
    """The endpoint that the leader of an epoch has announced, or else that of its voter entry."""

    def __init__(self, voters: VoterHistory) -> None:
        self._voters = voters
        self._announced = LeaderAndEpoch(-1)  # the newest leader whose endpoint is known

    def observe(self, leader: LeaderAndEpoch) -> None:
        """Called with each leader that another broker names."""
        if leader.endpoint is not None and leader.epoch >= self._announced.epoch:
            self._announced = leader

    def find(self, epoch: int, leader: int) -> QuorumEndpoint | None:
        """The endpoint of `leader`, which leads in the current epoch, `epoch`; None if it is
        unknown.
        """
        if (self._announced.epoch, self._announced.leader) == (epoch, leader):
            return self._announced.endpoint
        voter = next((voter for voter in self._voters.latest if voter.broker == leader), None)
        return None if voter is None else voter.endpoint
