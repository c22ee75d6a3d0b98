"""A Pipeline on Kubernetes: pure. Who launches it, what objects it becomes, whether it may start, what is to be said of it.

`desired` in `whole.py` puts the objects together; the other files say what one kind of object looks like and why.
"""
