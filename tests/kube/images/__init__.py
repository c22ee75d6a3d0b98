"""The project's own images, from their Dockerfiles, without Docker and without a registry."""
