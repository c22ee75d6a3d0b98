"""`ottla broker --workers N`: N brokers that share a machine, as one command."""
