"""The certificate authority that a Cluster with `tls.issuer: Internal` has of its own."""
