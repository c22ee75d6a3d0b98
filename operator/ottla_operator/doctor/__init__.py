"""Checks of `ottla doctor`: this machine, the brokers of a cluster, and Kubernetes."""
