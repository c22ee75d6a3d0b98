"""The Kubernetes objects that a Cluster is: pure, deterministic, one idea in each file.

`desired` in `whole.py` puts them together; the other files say what one kind of object looks like and why.
"""
