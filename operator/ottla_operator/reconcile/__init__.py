"""Reconciles resources of all kinds, on Kubernetes and on processes of this machine alike.

Each reconciler observes, lets a pure plan (`plan/`) decide, does one step and reports. What differs
between the two is behind `platform.Platform`: `kube/` and `local/` observe and act, and decide
nothing.
"""
