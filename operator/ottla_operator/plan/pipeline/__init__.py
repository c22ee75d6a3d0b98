"""A Pipeline: its launcher and its objects on Kubernetes, whether it may start, which changes of it
keep the checkpoint, and what is reported of it. Pure.

`desired_objects` in `desired.py` puts the objects together.
"""
