"""The controller and what only it knows, and the state of this broker."""

from ottla_broker.metrics.declaration import gauge

ACTIVE_CONTROLLER = gauge(
    "kafka_controller_kafkacontroller_activecontrollercount",
    "1 on the active controller, 0 elsewhere; 1 in total.",
)
TOPICS = gauge(
    "kafka_controller_kafkacontroller_globaltopiccount", "Topics of the cluster; reported by the controller."
)
CLUSTER_PARTITIONS = gauge(
    "kafka_controller_kafkacontroller_globalpartitioncount", "Partitions of the cluster; reported by the controller."
)
LEADERLESS = gauge(
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "Partitions of the cluster without a leader; reported by the controller.",
)
NOT_PREFERRED = gauge(
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
    "Partitions of the cluster that their preferred replica does not lead; reported by the controller.",
)
ACTIVE_BROKERS = gauge(
    "kafka_controller_kafkacontroller_activebrokercount",
    "Registered brokers that are not fenced; reported by the controller.",
)
FENCED_BROKERS = gauge(
    "kafka_controller_kafkacontroller_fencedbrokercount",
    "Registered brokers that are fenced; reported by the controller.",
)
BROKER_STATE = gauge("kafka_server_kafkaserver_brokerstate", "1: starting or stopping, 3: running.")
