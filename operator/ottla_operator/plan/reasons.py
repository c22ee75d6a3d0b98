"""Every reason of a condition or an event: what it means and what to do.

`python -m ottla_operator.plan.reasons` prints docs/conditions.md.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

WAIT: Final = "Nothing: it passes by itself."
NOTHING: Final = "Nothing."
SPARK_LOG: Final = "Read the driver's log (`kubectl logs`, or `output.log` with `ottla up`)."


class Reason(NamedTuple):
    name: str
    meaning: str
    action: str


CONDITION_REASONS: Final[Mapping[str, tuple[Reason, ...]]] = {
    "Ready is True": (
        Reason("Reconciled", "The resource is as its spec says.", NOTHING),
        Reason("Replicating", "Mirror: topics are copied.", NOTHING),
        Reason("Paused", "Mirror: `role: Paused`, so nothing is copied.", "Set `role: Replicate` to go on."),
        Reason("FailedOver", "Mirror: the copies are open for writing.", "Set `role: Replicate` to copy again."),
        Reason("Suspended", "Pipeline: `state: suspended`; the checkpoint is kept.", "Set `state: running` to go on."),
        Reason("Completed", "Pipeline: the driver has read everything and exited.", NOTHING),
        Reason("Idle", "On Reconciling: no change is in progress.", NOTHING),
        Reason("Healthy", "On Stalled: nothing needs a person.", NOTHING),
    ),
    "Reconciling is True": (
        Reason("WaitingForOperator", "No operator has reconciled the resource yet.", "Check that one is running."),
        Reason(
            "RetryingAfterError",
            "A request failed; it is repeated with growing pauses.",
            "Read the message if it lasts: network, API server or brokers.",
        ),
        Reason(
            "ReconcileError", "A bug in the operator ended the reconcile; it is repeated.", "Report it with the log."
        ),
        Reason("Terminating", "Objects of a deleted resource with this name still exist.", WAIT),
        Reason("ClusterNotFound", "The Cluster of `clusterRef` does not exist.", "Create it, or correct `clusterRef`."),
        Reason("ClusterNotReady", "No broker of the Cluster is ready.", "See the Cluster's conditions if it lasts."),
        Reason(
            "BrokersUnreachable",
            "Brokers are ready, but none answers.",
            "Check network policies and the brokers' logs.",
        ),
        Reason(
            "InsufficientReplicas",
            "Fewer brokers are ready than `replicas`.",
            "See the message and the pods if it lasts.",
        ),
        Reason(
            "WaitingForAddress", "A Service of a listener has no address yet.", "Check the load balancer if it lasts."
        ),
        Reason(
            "RollingRestart",
            "Brokers are restarted one after the other.",
            "See `status.roll.blockedBy` for what a restart waits for.",
        ),
        Reason("Scaling", "Brokers are being added or removed.", "See the message for what it waits for."),
        Reason("MovingPartitions", "Partitions are being reassigned.", WAIT),
        Reason("PartitionsOffline", "Partitions have no leader.", "Bring the brokers back that have their replicas."),
        Reason("PartitionsUnderReplicated", "Replicas are missing from ISRs.", "Check brokers and disks if it lasts."),
        Reason("CreatingTopic", "Topic: the topic is being created.", WAIT),
        Reason("ChangingTopic", "Topic: partitions or configuration are being changed.", WAIT),
        Reason(
            "DeletionPolicyNotRecorded",
            "Topic: `deletionPolicy: Delete` could not be recorded, so the topic would stay.",
            "Read the message: the operator must be able to write ConfigMaps.",
        ),
        Reason("JoiningSource", "Mirror: finding the offset up to which a log is its source's.", WAIT),
        Reason("FailingOver", "Mirror: partitions are being opened for writing.", WAIT),
        Reason("NoTopicsMatched", "Mirror: no topic of the source is copied yet.", "Check `topics` and the message."),
        Reason(
            "SourceNotFound", "Mirror: the source's Cluster or a listener to read it is missing.", "See the message."
        ),
        Reason("SourceUnreachable", "Mirror: the source does not answer.", "Check address, network and credentials."),
        Reason("CredentialsUnusable", "Mirror: a Secret is missing or lacks a key.", "Correct the Secret."),
        Reason("WaitingForTopics", "Pipeline: its topics are not ready.", "See the condition TopicsReady."),
        Reason("ChangingLauncher", "Pipeline: the other launcher's driver is being stopped.", WAIT),
        Reason("Submitting", "Pipeline: the Spark operator has not submitted the application yet.", WAIT),
        Reason(
            "SubmissionFailed", "Pipeline: the Spark operator could not submit it.", "See the Spark operator's log."
        ),
        Reason("DriverStarting", "Pipeline: the driver is starting.", WAIT),
        Reason("DriverRestarting", "Pipeline: the driver failed and is started again.", SPARK_LOG),
        Reason(
            "NoExecutorRunning", "Pipeline: no executor is running.", "Check the executors' pods: image, quota, nodes."
        ),
        Reason("Suspending", "Pipeline: the batch in progress ends, then the driver stops.", WAIT),
    ),
    "Stalled is True": (
        Reason("InvalidSpec", "The spec cannot be fulfilled.", "Correct the field that the message names."),
        Reason("NameConflict", "An object or a topic of this name belongs to another.", "Rename or delete one."),
        Reason("RejectedByApiServer", "The API server rejects a write.", "Read the message: quota, policy or rights."),
        Reason("RejectedByBrokers", "Brokers reject a change.", "Correct what the message names."),
        Reason("BrokerStartFailed", "A broker is not ready in time; no other is restarted.", "Read its log."),
        Reason("CertificateUnusable", "The Secret of `spec.tls` is missing or unusable.", "Correct the Secret."),
        Reason("ConfigRejected", "Running brokers reject a value of `spec.config`.", "Correct the value."),
        Reason(
            "ScaleDownBlocked",
            "A partition has more replicas than brokers would remain.",
            "Reduce its replicas, or raise `replicas`.",
        ),
        Reason(
            "SourceTruncated",
            "Mirror: the source has lost records that were copied.",
            "Set `onSourceTruncation`, or fail over.",
        ),
        Reason(
            "Diverged",
            "Mirror: records are here and not at the source.",
            "Set `onDivergence: Truncate` to save them to files and truncate.",
        ),
        Reason(
            "FailedOver",
            "Mirror: it failed over by another command.",
            "Set `role: FailedOver`, and then the old role to copy again.",
        ),
        Reason("InvalidPipeline", "Pipeline: the runner rejects the definition.", "Correct what the message names."),
        Reason("CrashLoopBackOff", "Pipeline: the driver has failed repeatedly.", SPARK_LOG),
        Reason(
            "ImagePullBackOff", "Pipeline: an image cannot be pulled.", "Correct `spec.spark.image` or pull secrets."
        ),
        Reason("ApplicationFailed", "Pipeline: the SparkApplication has failed.", SPARK_LOG),
        Reason("SparkOperatorNotFound", "Pipeline: `launcher: SparkOperator` without its CRD.", "Install it."),
        Reason("NoPlaintextListener", "Pipeline: the Cluster has no listener without TLS.", "Add one."),
        Reason("PrerequisiteMissing", "Pipeline on `ottla up`: PySpark or Java is missing.", "Install it."),
    ),
    "Available (Cluster)": (
        Reason("BrokersReady", "True: every partition has a leader.", NOTHING),
        Reason("NoBrokerReady", "False: no broker is ready.", "See Ready."),
        Reason("PartitionsOffline", "False: partitions have no leader.", "See Ready."),
    ),
    "InSync and FailoverSafe (Mirror)": (
        Reason("InSync", "InSync is True: no record was missing when the source was last reached.", NOTHING),
        Reason("Lagging", "InSync is False: records are not copied yet, or the source is unreachable.", "See Ready."),
        Reason("NoKnownLoss", "FailoverSafe is True: a failover would lose no known record.", NOTHING),
        Reason("RecordsMissing", "FailoverSafe is False: a failover would lose records.", "Wait for InSync."),
        Reason("NoTopicsMatched", "False: no topic is copied yet.", "See Ready."),
        Reason("Diverged", "False: records are here and not at the source.", "See Ready."),
        Reason("FailedOver", "InSync is False: the copies are open for writing.", NOTHING),
    ),
    "TopicsReady (Pipeline)": (
        Reason("TopicsReady", "True: all topics of the pipeline are ready.", NOTHING),
        Reason(
            "WaitingForTopics", "False: the message names the topics.", "See their Topic resources, or create them."
        ),
    ),
}

EVENT_REASONS: Final = (
    Reason("ConfigChanged", "Cluster: a setting was changed without a restart.", NOTHING),
    Reason("RestartingBroker", "Cluster: a broker is restarted, for the reason given.", NOTHING),
    Reason("MovingPartitions", "Cluster: a reassignment was started.", NOTHING),
    Reason("PartitionsMoved", "Cluster: the reassignment is complete.", NOTHING),
    Reason("RemovingBroker", "Cluster: a broker that holds no replicas is stopped.", NOTHING),
    Reason("RemovedBrokerNeeded", "Cluster: a broker got replicas while it was being removed.", WAIT),
    Reason("BrokerUnregistered", "Cluster: a removed broker was unregistered.", NOTHING),
    Reason("StorageExpanding", "Cluster: disks are being expanded.", NOTHING),
    Reason("RackLabelMissing", "Cluster: a node lacks the label of `rack.topologyKey`.", "Label the node."),
    Reason("TopicCreated", "Topic: the topic was created.", NOTHING),
    Reason("PartitionsAdded", "Topic: partitions were added.", NOTHING),
    Reason("ReplicationFactorChanged", "Topic: a reassignment to another number of replicas was started.", NOTHING),
    Reason("TopicConfigChanged", "Topic: configuration was changed.", NOTHING),
    Reason("TopicDeleted", "Cluster: topics were deleted with their Topics.", NOTHING),
    Reason("TopicDeletionFailed", "Cluster: a topic could not be deleted; it is tried again.", "Read the message."),
    Reason(
        "TopicRetained",
        "Cluster: no operator watched the deletion of a Topic, so the topic stays.",
        "Delete the topic with `ottla topics delete` if it is not needed.",
    ),
    Reason("DeletionPolicyNotRecorded", "Cluster: as the condition of the same name.", "See the condition."),
    Reason("StatusWriteFailed", "Topic: the status could not be written.", "Read the message."),
    Reason("MirrorConfigured", "Mirror: settings were sent to the brokers.", NOTHING),
    Reason("DriverLaunched", "Pipeline: a driver was created.", NOTHING),
)
"""Events record the reasons of Stalled and of Ready too."""


def conditions_page() -> str:
    """docs/conditions.md."""
    sections = [*CONDITION_REASONS.items(), ("Events", EVENT_REASONS)]
    return "\n".join([_HEAD, *(_section(title, reasons) for title, reasons in sections)])


def _section(title: str, reasons: tuple[Reason, ...]) -> str:
    rows = [f"| `{it.name}` | {it.meaning} | {it.action} |" for it in reasons]
    return "\n".join([f"## {title}", "", "| Reason | Meaning | What to do |", "|---|---|---|", *rows, ""])


_HEAD: Final = """\
# Conditions and events

Every Cluster, Topic, Mirror and Pipeline has the conditions `Ready`, `Reconciling` and `Stalled`, and exactly one of
them is `True`. `Reconciling`: work is in progress that needs no person. `Stalled`: a person has to change something.
`Ready` has the reason of the one that is `True`. `kubectl wait --for=condition=Ready`, kstatus, Flux and Argo CD read
them. `ottla up` shows the same reasons' messages on the terminal.

This page is printed by `python -m ottla_operator.plan.reasons`.
"""

if __name__ == "__main__":
    print(conditions_page(), end="")
