"""What `ottla doctor` examines: this machine, the brokers of a cluster, and Kubernetes."""
