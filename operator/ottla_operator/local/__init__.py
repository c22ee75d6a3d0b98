"""The same resources on one machine: brokers and pipelines as processes, without Kubernetes."""
