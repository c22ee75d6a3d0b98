"""The operator on Kubernetes: kopf watches, one loop for each cluster looks and does the next step, the plans decide."""
