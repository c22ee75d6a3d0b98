"""The custom resources of `ottla.dev/v1alpha1` as types. The CRDs in `crds/` are generated from
them.
"""
