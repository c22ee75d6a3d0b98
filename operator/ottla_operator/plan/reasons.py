"""Every reason of a condition and of an event, with its meaning and the action that a person should
take.

docs/conditions.md is generated from this table: `python -m ottla_operator.plan.reasons >
docs/conditions.md`. Reasons follow the Kubernetes API conventions
(sig-architecture/api-conventions.md, "Typical status properties"): one CamelCase word that programs
may compare. A test checks that the operator uses no other.
"""

from typing import Final, NamedTuple

CONDITION_TYPES: Final = (
    ("Ready", "The resource matches its spec."),
    ("Reconciling", "Work is under way that needs no person (kstatus)."),
    ("Stalled", "A person has to change something (kstatus)."),
    ("Available", "Of a Cluster: clients are served, whether or not work is under way."),
    ("TopicsReady", "Of a Pipeline: every topic that it reads exists, and every Topic of its topics is ready."),
    ("InSync", "Of a Mirror: the copies have every record of the source."),
    (
        "SchemasCopied",
        "Of a Mirror with `sync.schemas`: the target's registry has the source's schemas. While False, its reason may "
        "also be one of Ready, for the topic `_schemas` alone.",
    ),
    ("FailoverSafe", "Of a Mirror: a failover now would lose no record that was seen at the source."),
)
NOTHING: Final = "Nothing."


class Reason(NamedTuple):
    """`kinds`: kinds of resources that show it. `action`: advice for a person."""

    name: str
    kinds: str
    meaning: str
    action: str = NOTHING


ALL_KINDS: Final = "all"
READY_REASONS: Final = (
    Reason("WaitingForOperator", ALL_KINDS, "No operator has reconciled the resource yet.", "Start an operator."),
    Reason("Reconciled", ALL_KINDS, "The resource matches its spec."),
    Reason("Idle", ALL_KINDS, "No change is in progress (reason of Reconciling)."),
    Reason("Healthy", ALL_KINDS, "Nothing needs a person (reason of Stalled)."),
    Reason("Replicating", "Mirror", "Topics are copied: all that match, except those that the message names."),
    Reason("Paused", "Mirror", "`role: Paused`: the copies stay as they are."),
    Reason("Completed", "Pipeline", "A pipeline with `availableNow` has read everything and exited."),
    Reason("Suspended", "Pipeline", "`state: suspended`: no driver runs; the checkpoint is kept."),
    Reason("Replaced", "Pipeline", "Another Pipeline has taken over (`spec.replaces`): no driver runs."),
)
RECONCILING_REASONS: Final = (
    Reason("InsufficientReplicas", "Cluster", "Fewer brokers serve than `replicas` says.", "Wait; see the message."),
    Reason(
        "Unschedulable",
        "Cluster",
        "No node can take a broker's pod.",
        "Add nodes, or correct requests, affinity and brokersPerNode.",
    ),
    Reason("RollingRestart", "Cluster", "Brokers are restarted one after the other.", "See `status.roll`."),
    Reason(
        "RotatingPasswords",
        "Cluster",
        "Brokers and operator are getting new passwords, without a restart.",
        "Wait; the message says for which brokers.",
    ),
    Reason("Scaling", "Cluster", "Brokers are being added or removed.", "See `status.scaling`."),
    Reason(
        "MovingPartitions",
        "Cluster, Topic",
        "Partitions are being reassigned.",
        "See `status.reassignment` of the Cluster.",
    ),
    Reason("PartitionsUnderReplicated", "Cluster", "Replicas are catching up.", "`ottla cluster health`"),
    Reason("PartitionsOffline", "Cluster", "Partitions have no leader.", "`ottla cluster health`"),
    Reason("WaitingForAddress", "Cluster", "A Service has no address yet.", "Check the load balancer."),
    Reason("Terminating", "Cluster, Topic, Pipeline, Mirror", "An object of the same name is still being deleted."),
    Reason(
        "BrokersUnreachable",
        ALL_KINDS,
        "The operator cannot reach the brokers, or too few voters of the metadata log for a controller.",
        "Check network policies.",
    ),
    Reason(
        "ClusterNotFound",
        "Topic, Group, Schema, User, Mirror, Pipeline",
        "The Cluster does not exist, or is being deleted.",
        "Create the Cluster.",
    ),
    Reason(
        "ClusterNotReady",
        "Topic, Group, Schema, User, Mirror, Pipeline",
        "No broker of the Cluster is ready, or an address or authority that a User needs is not known yet.",
        "See the Cluster.",
    ),
    Reason("CreatingTopic", "Topic", "The topic is being created."),
    Reason("ChangingTopic", "Topic", "The topic is being changed."),
    Reason("ChangingGroup", "Group", "The group's settings are being changed."),
    Reason(
        "DeletionPolicyNotRecorded",
        "Topic",
        "The operator could not record that the topic must be deleted with its Topic.",
        "Let the operator write the ConfigMap of the Cluster.",
    ),
    Reason("RegisteringSchema", "Schema", "The schema is being registered."),
    Reason(
        "RegistryUnreachable", "Schema", "The Cluster's schema registry does not answer.", "Check network policies."
    ),
    Reason(
        "SchemaSourceNotFound", "Schema", "The ConfigMap of `schemaFrom`, or its key, does not exist.", "Create it."
    ),
    Reason(
        "WaitingForReference", "Schema", "A Schema that it refers to is not registered.", "See the Schema referred to."
    ),
    Reason(
        "WaitingForAuthorization",
        "User",
        "Brokers have not been restarted with access rules yet.",
        "See `status.roll` of the Cluster.",
    ),
    Reason(
        "CredentialsUnusable",
        "Mirror, Pipeline, User",
        "A Secret is missing or unusable. A User is Stalled with this reason, and with `ottla up` a Pipeline.",
        "Correct the Secret.",
    ),
    Reason("WaitingForUser", "Mirror, Pipeline", "The User that it connects as is not ready yet.", "See the User."),
    Reason("SourceNotFound", "Mirror", "The source Cluster or its listener does not exist.", "Create it."),
    Reason("SourceUnreachable", "Mirror", "The source does not answer.", "Check address, network and TLS."),
    Reason("JoiningSource", "Mirror", "A copy is finding the offset at which it continues."),
    Reason("NoTopicsMatched", "Mirror", "No topic of the source is copied yet.", "Check `spec.topics`."),
    Reason("FailingOver", "Mirror", "The copies are being opened for producers."),
    Reason("WaitingForTopics", "Pipeline", "Topics that are read or written are not ready.", "See the message."),
    Reason("DriverStarting", "Pipeline", "The driver is starting."),
    Reason("DriverRestarting", "Pipeline", "The driver has ended and is started again.", "See `status.lastError`."),
    Reason("NoExecutorRunning", "Pipeline", "The driver runs without an executor.", "Check quota and nodes."),
    Reason("Suspending", "Pipeline", "The driver stops after the batch in flight."),
    Reason("ChangingLauncher", "Pipeline", "A former driver, such as the other launcher's, is being deleted."),
    Reason("Submitting", "Pipeline", "The Spark operator has not submitted the application yet."),
    Reason("SubmissionFailed", "Pipeline", "The Spark operator could not submit the application.", "See the message."),
    Reason("RetryingAfterError", ALL_KINDS, "A step failed and is tried again.", "Wait; if it lasts, see the message."),
    Reason("ReconcileError", ALL_KINDS, "The operator failed unexpectedly.", "See the operator's log; report it."),
)
STALLED_REASONS: Final = (
    Reason("InvalidSpec", ALL_KINDS, "The spec cannot be fulfilled.", "Correct the field that the message names."),
    Reason(
        "NameConflict",
        ALL_KINDS,
        "An object, topic, group, subject or user of that name belongs to another resource.",
        "Rename one.",
    ),
    Reason(
        "PipelineNotAllowed",
        "Topic",
        "The operator is not allowed to create the Pipeline of `spec.lake`.",
        "Upgrade the operator's Helm chart, which has the role.",
    ),
    Reason("RejectedByApiServer", ALL_KINDS, "The API server rejected an object.", "Check quota and admission."),
    Reason(
        "RejectedByBrokers",
        "Topic, Group, User, Mirror",
        "The brokers rejected a change.",
        "Correct what the message names.",
    ),
    Reason(
        "IncompatibleSchema",
        "Schema",
        "The registry refuses the schema: it is incompatible with earlier versions. The message names the rule, the "
        "field, the version, and the running Pipelines that read the subject.",
        "Change the schema, or the subject's compatibility.",
    ),
    Reason("InvalidSchema", "Schema", "The registry cannot parse the schema.", "Correct what the message names."),
    Reason("RejectedByRegistry", "Schema", "The registry rejected a change.", "Correct what the message names."),
    Reason("NoSchemaRegistry", "Schema", "The Cluster serves no schema registry.", "Set its `schemaRegistry`."),
    Reason(
        "NoRegistryLogin",
        "Schema",
        "The operator cannot log in at the listener that the registry follows.",
        "Set `schemaRegistry.listener` of the Cluster, as the message says.",
    ),
    Reason("BrokerStartFailed", "Cluster", "A broker did not become ready in time.", "See the pod's log."),
    Reason(
        "QuorumLost",
        "Cluster",
        "A majority of the metadata log's voters has lost its disks.",
        "Restore one, or `ottla cluster recover` (docs/quorum.md).",
    ),
    Reason(
        "FailedCreate",
        "Cluster",
        "Kubernetes cannot create a broker's pod or claim.",
        "Correct quota, Pod Security level or service account, as the message says.",
    ),
    Reason("ReconciliationPaused", "Cluster", "`spec.paused` is true: nothing is changed.", "Set it to false."),
    Reason("SettingRefused", "Cluster", "No broker would start with `spec.config`.", "Correct the setting named."),
    Reason("ConfigRejected", "Cluster", "Brokers do not accept a setting.", "Correct `spec.config`."),
    Reason(
        "CertificateUnusable",
        "Cluster, Topic, Group, Schema, User, Mirror",
        "A Secret of the Cluster's `tls` is missing or unusable.",
        "Correct the Secret.",
    ),
    Reason(
        "ConsoleSecretUnusable",
        "Cluster",
        "A Secret of `console.oidc` is missing or unusable: a broker's pod could not start with it.",
        "Correct the Secret.",
    ),
    Reason(
        "LoginUnusable",
        "Cluster, Topic, Group, Schema, User, Mirror",
        "The Secret with the passwords of brokers and operator is lost or unusable.",
        "Restore it, as the message says.",
    ),
    Reason(
        "ScaleDownBlocked", "Cluster", "A topic has more replicas than there would be brokers left.", "Reduce them."
    ),
    Reason(
        "ListenerNotFound",
        "User",
        "The Cluster has no listener on which the user could log in.",
        "Add one with this authentication, or change the User's.",
    ),
    Reason(
        "AuthorityNotFound",
        "User",
        "The Cluster has no certificate authority of its own to issue the user's certificate.",
        "Set `tls.issuer: Internal` of the Cluster, or the User's authentication to External.",
    ),
    Reason(
        "AccessPolicyUnusable",
        "User",
        "An AccessPolicy of `aclsFrom` is missing or cannot be used. Nothing is allowed by it; denials stay.",
        "Create or correct the policy, or remove it from `aclsFrom`.",
    ),
    Reason(
        "AuthorizationDisabled",
        "User",
        "The User has access rules, and its Cluster allows everything.",
        "Set the Cluster's `authorization.type` to ACL.",
    ),
    Reason(
        "SourceTruncated",
        "Mirror",
        "The source lost records that the copy has, or was created again.",
        "`onSourceTruncation: Resync` copies it again from the start.",
    ),
    Reason("Diverged", "Mirror", "The copy has records that the source never had.", "See docs/mirroring.md."),
    Reason(
        "FailedOver",
        "Mirror",
        "The copies are open for producers, though the Mirror's role is another. With `role: FailedOver` the Mirror is "
        "Ready with this reason.",
        "Set `role` to what you want.",
    ),
    Reason(
        "UserNotReady",
        "Mirror, Pipeline",
        "The User that it connects as needs a person, or cannot be created.",
        "See the message.",
    ),
    Reason(
        "NoPlaintextListener",
        "Pipeline",
        "The Cluster has no listener for pipelines.",
        "Add one with SCRAM, with TLS and the internal issuer, or without TLS and authentication.",
    ),
    Reason(
        "ReplacementConflict",
        "Pipeline",
        "It shares a target or a consumer group with the Pipeline that it replaces, or reads another Cluster.",
        "Change the field that the message names.",
    ),
    Reason("SparkOperatorNotFound", "Pipeline", "SparkApplications are not known.", "Install the Spark operator."),
    Reason("ApplicationFailed", "Pipeline", "The SparkApplication failed.", "See `status.lastError`."),
    Reason("InvalidPipeline", "Pipeline", "The runner refuses the pipeline.", "Correct what the message names."),
    Reason("CrashLoopBackOff", "Pipeline", "The driver failed several times.", "See `status.lastError`."),
    Reason("ImagePullBackOff", "Cluster, Pipeline", "The image cannot be pulled.", "Check the image and pull secrets."),
    Reason("PrerequisiteMissing", "Pipeline", "`ottla up`: Java or PySpark is missing.", "Install it."),
)
OTHER_REASONS: Final = (
    Reason("BrokersReady", "Cluster", "Available: brokers are ready."),
    Reason("NoBrokerReady", "Cluster", "Not Available: no broker is ready.", "See Ready."),
    Reason("TopicsReady", "Pipeline", "Every topic that is read exists, and every Topic of its topics is ready."),
    Reason("SchemasCopied", "Mirror", "The target's registry has the source's schemas, with their ids."),
    Reason("NoSchemas", "Mirror", "No topic `_schemas` is copied yet."),
    Reason(
        "SchemasRefused",
        "Mirror",
        "The topic `_schemas` of the target is not a copy of the source's: ids could conflict.",
        "Delete it, if its schemas are not needed, or copy without `sync.schemas`.",
    ),
    Reason("InSync", "Mirror", "No record is missing."),
    Reason("Lagging", "Mirror", "Records of the source are not copied yet, or may not be; see the message."),
    Reason("RecordsMissing", "Mirror", "A failover now would lose records, or might.", "Wait, or accept the loss."),
    Reason("NoKnownLoss", "Mirror", "As far as is known, a failover now would lose no record."),
)
EVENT_REASONS: Final = (
    Reason("RollStarted", "Cluster", "A rolling restart begins, for the reason in the message."),
    Reason("RestartingBroker", "Cluster", "A broker is being restarted, for the reason in the message."),
    Reason("RollCompleted", "Cluster", "Every broker that had to be restarted serves again."),
    Reason("ScalingStarted", "Cluster", "The number of brokers is being changed."),
    Reason("ScalingCompleted", "Cluster", "There are as many brokers as the spec asks for, and no move is left."),
    Reason("BrokerReady", "Cluster", "A broker serves, for the first time or again."),
    Reason(
        "BrokerNotReady", "Cluster", "A broker no longer serves, and was not restarted on purpose.", "See the message."
    ),
    Reason("Available", "Cluster", "Clients are served again after an outage."),
    Reason("ConfigChanged", "Cluster", "A setting was changed without a restart."),
    Reason("PartitionsMoved", "Cluster", "A reassignment has ended."),
    Reason("RemovingBroker", "Cluster", "A broker without replicas is being stopped."),
    Reason("RemovedBrokerNeeded", "Cluster", "A removed broker has replicas and is started until they are moved."),
    Reason(
        "MinInSyncReplicasChanged",
        "Cluster",
        "`min.insync.replicas` of `__transaction_state` follows the number of brokers.",
    ),
    Reason("BrokerUnregistered", "Cluster", "A removed broker was unregistered."),
    Reason(
        "RolloutRestartIgnored",
        "Cluster",
        "`kubectl rollout restart` was used, which restarts no broker.",
        "Set `spec.restartAt` to the present time.",
    ),
    Reason(
        "CertificateChanged",
        "Cluster",
        "The Secret of `tls.secretRef` was renewed, or the Cluster's own authority was created or removed, or has "
        "issued the brokers' certificate; the message says which.",
        "If an authority was created: clients have to trust it before it issues certificates.",
    ),
    Reason(
        "PasswordsRotated", "Cluster", "Brokers and operator have new passwords, and the previous ones are refused."
    ),
    Reason("StorageExpanding", "Cluster", "Disks are being expanded."),
    Reason("RackLabelMissing", "Cluster", "A node lacks the label of `rack.topologyKey`.", "Label the node."),
    Reason("TopicDeleted", "Cluster", "A topic was deleted with its Topic resource."),
    Reason("TopicRetained", "Cluster", "A topic stays although its Topic said Delete.", "`ottla topics delete`"),
    Reason(
        "TopicDeletionFailed", "Cluster", "Brokers refuse to delete a topic; it is tried again.", "See the message."
    ),
    Reason("TopicCreated", "Topic", "The topic was created."),
    Reason("PartitionsAdded", "Topic", "Partitions were added."),
    Reason("ReplicationFactorChanged", "Topic", "The number of replicas is being changed."),
    Reason("TopicConfigChanged", "Topic", "Settings of the topic were changed."),
    Reason("GroupConfigChanged", "Group", "Settings of the group were changed."),
    Reason(
        "SchemaRegistered",
        "Schema",
        "A version was registered; the message says which running Pipelines read earlier ones.",
    ),
    Reason("CompatibilityChanged", "Schema", "The subject's compatibility level was set."),
    Reason("SubjectDeleted", "Schema", "The subject was soft-deleted with its Schema."),
    Reason("UserChanged", "User", "Credential, access rules or quotas were changed; the message says which."),
    Reason("CertificateIssued", "User", "The client certificate was issued or renewed; the message says why."),
    Reason(
        "DriftCorrected", "User", "Others had changed the user on the brokers; it was set back.", "See the message."
    ),
    Reason("UserRevoked", "Cluster", "Credential, rules and quotas of deleted or renamed Users were removed."),
    Reason("StatusWriteFailed", "Topic, Group, Schema, User", "The status could not be written.", "Check the message."),
    Reason("MirrorConfigured", "Mirror", "Settings of the mirror were changed on the brokers."),
    Reason("DriverLaunched", "Pipeline", "A driver was launched."),
    Reason(
        "ReplacementProgress",
        "Pipeline",
        "A Pipeline that replaces another is catching up, has caught up, is taking over or has taken over.",
    ),
)
SECTIONS: Final = (
    ("Reasons while Ready is True, and of conditions that are False", READY_REASONS),
    ("Reasons of Reconciling", RECONCILING_REASONS),
    ("Reasons of Stalled", STALLED_REASONS),
    ("Reasons of other conditions", OTHER_REASONS),
    ("Reasons of events", EVENT_REASONS),
)
INTRODUCTION: Final = """# Conditions and events

<!-- Generated from operator/ottla_operator/plan/reasons.py: python -m ottla_operator.plan.reasons -->

Every resource has the conditions `Ready`, `Reconciling` and `Stalled`, each with the generation that
was evaluated, and exactly one of them is `True`. `kubectl wait`, Flux and Argo CD read them as kstatus
does. An event is recorded when a step begins or ends, and when a condition needs a person.
"""


def render_page() -> str:
    """docs/conditions.md."""
    lines = [INTRODUCTION, "| condition | meaning when it is True |", "|---|---|"]
    lines += [f"| `{name}` | {meaning} |" for name, meaning in CONDITION_TYPES]
    for title, reasons in SECTIONS:
        lines += ["", f"## {title}", "", "| reason | of | meaning | what to do |", "|---|---|---|---|"]
        lines += [f"| `{it.name}` | {it.kinds} | {it.meaning} | {it.action} |" for it in reasons]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(render_page(), end="")
