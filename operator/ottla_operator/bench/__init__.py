"""The load and the measurements of `ottla bench`."""
