"""Kubernetes as the platform: brokers are pods of a StatefulSet, reports are `status` and events.
See docs/operator.md.
"""
