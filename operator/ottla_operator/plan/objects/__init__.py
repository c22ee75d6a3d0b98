"""The Kubernetes objects of a Cluster: pure and deterministic, one idea in each file.

`desired_objects` in `desired.py` puts them together.
"""
