"""Mirrors of other clusters: their topics are filled by the brokers that lead them here
(docs/mirroring.md).
"""
