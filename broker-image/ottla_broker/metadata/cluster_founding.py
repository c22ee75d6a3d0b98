"""Decides whether a broker founds a cluster or leads the recovery of one. Such a broker becomes the
only voter of its metadata log.
"""

import logging

from ottla_broker.metadata.metadata_log import MetadataLog
from ottla_broker.metadata.quorum_peers import QuorumPeers
from ottla_broker.metadata.quorum_recovery import RecoveryOrder
from ottla_broker.metadata.quorum_settings import QuorumSettings
from ottla_broker.metadata.quorum_state import QuorumStateFile

logger = logging.getLogger(__name__)


async def founds_cluster(
    log: MetadataLog,
    state_file: QuorumStateFile,
    settings: QuorumSettings,
    peers: QuorumPeers,
    recovery: RecoveryOrder | None,
) -> bool:
    """True for the leader of a recovery. Without a recovery, True if the log names no voters and
    one of these holds: the broker has no bootstrap servers; it was the only voter of Ottla 0.1; the
    log is empty, cluster.found allows it and no other broker has a cluster.
    """
    if recovery is not None:
        return recovery.leads
    if log.voters.latest:
        return False
    if not settings.bootstrap_servers or state_file.register_voters:
        return True
    if log.end_offset > 0 or not settings.may_found:
        return False
    if (found := await peers.find_cluster()) is not None:
        logger.info("broker %d does not found a cluster: cluster %s exists", peers.me.broker, found)
        return False
    return True
