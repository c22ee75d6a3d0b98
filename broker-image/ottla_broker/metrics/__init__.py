"""The broker's Prometheus metrics, each declared once, and the integers that hot paths add to.

A metric that Kafka has too is named as the usual rules of the JMX exporter name Kafka's, so that
dashboards for Kafka work. Nothing is computed in advance: `http.collector` reads the broker when
it is scraped. A metric is declared in the file of its subject; `METRICS` has all, in the order in
which they are imported here.
"""

# ruff: noqa: F403, I001
from ottla_broker.metrics.topics import *
from ottla_broker.metrics.requests import *
from ottla_broker.metrics.connections import *
from ottla_broker.metrics.replicas import *
from ottla_broker.metrics.mirrors import *
from ottla_broker.metrics.controller import *
from ottla_broker.metrics.partitions import *
from ottla_broker.metrics.disks import *
from ottla_broker.metrics.coordinators import *
from ottla_broker.metrics.tracing import *
from ottla_broker.metrics.quorum import *
from ottla_broker.metrics.process import *
from ottla_broker.metrics.declaration import METRICS as METRICS
from ottla_broker.metrics.declaration import Kind as Kind
from ottla_broker.metrics.declaration import Metric as Metric
from ottla_broker.metrics.declaration import Sample as Sample
from ottla_broker.metrics.traffic import API_KEY_LIMIT as API_KEY_LIMIT
from ottla_broker.metrics.traffic import PartitionTraffic as PartitionTraffic
