"""A Pipeline on Kubernetes: pure. Which launcher runs it, which objects it becomes, whether it may
start, and what is reported of it.

`desired_objects` in `desired.py` puts the objects together.
"""
