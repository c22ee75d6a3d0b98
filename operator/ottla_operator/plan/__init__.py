"""Decisions of the operator: pure functions from the spec and the observed state to the next steps.
No I/O.
"""
