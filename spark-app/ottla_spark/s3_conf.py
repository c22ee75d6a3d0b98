"""Spark's configuration of S3-compatible stores, for URLs that begin with s3a://
(https://hadoop.apache.org/docs/r3.4.1/hadoop-aws/tools/hadoop-aws/index.html).

Files are written as multipart uploads, which the job's commit completes: no file is copied, and
none is visible before (Hadoop's magic committer). Files of a checkpoint are written as one object
each, so they are there as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ottla_operator.resources.object_store import ACCESS_KEY_ID, SECRET_ACCESS_KEY, ObjectStore, is_s3
from ottla_operator.resources.pipeline import PipelineSpec
from ottla_operator.resources.sinks import Sink
from ottla_spark.secret_files import read_secret

_DEFAULT_REGION: Final = "us-east-1"
_ENVIRONMENT_AND_POD_PROVIDERS: Final = ",".join(
    (
        "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider",
        "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider",
        "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider",
    )
)
_SECRET_PROVIDER: Final = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
_COMMITTERS: Final = {
    "spark.hadoop.fs.s3a.committer.name": "magic",
    "spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3a": (
        "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory"
    ),
    "spark.sql.sources.commitProtocolClass": "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol",
    "spark.sql.parquet.output.committer.class": "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter",
}
_CHECKPOINT_FILES: Final = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
    )
}


def uses_s3(spec: PipelineSpec, checkpoint: str) -> bool:
    """True if the pipeline names an S3-compatible store, or if a sink or the checkpoint, a path or
    URL, is in one.
    """
    return spec.s3 is not None or is_s3(checkpoint) or any(is_s3(it) for sink in spec.sinks for it in _sink_paths(sink))


def s3_conf(spec: PipelineSpec, checkpoint: str, secrets: Path | None) -> dict[str, str]:
    """Spark's properties of the pipeline's stores; none if `uses_s3` is false. `checkpoint`: path
    or URL. Raises PipelineError if a Secret cannot be read.
    """
    if not uses_s3(spec, checkpoint):
        return {}
    store = spec.s3 or ObjectStore()
    conf = {**_COMMITTERS, **_store_conf("spark.hadoop.fs.s3a.", store, secrets)}
    if is_s3(checkpoint):
        conf |= _CHECKPOINT_FILES
    bucket = spec.checkpoint.s3 if spec.checkpoint is not None else None
    if bucket is not None and (bucket.endpoint or bucket.secret_ref):
        own = ObjectStore(bucket.endpoint or store.endpoint, store.region, bucket.secret_ref or store.secret_ref)
        conf |= _store_conf(f"spark.hadoop.fs.s3a.bucket.{bucket.bucket}.", own, secrets)
    return conf


def iceberg_s3_properties(store: ObjectStore | None, secrets: Path | None) -> dict[str, str]:
    """Properties of Iceberg's REST catalogs: Iceberg's own S3 client reads and writes the files of
    their tables. Empty if `store` is None. Raises PipelineError if the Secret cannot be read.
    """
    if store is None:
        return {}
    found = {"client.region": store.region or _DEFAULT_REGION}
    if store.endpoint is not None:
        found |= {"s3.endpoint": store.endpoint, "s3.path-style-access": "true"}
    if store.secret_ref is not None:
        keys = read_secret(secrets, store.secret_ref.name, (ACCESS_KEY_ID, SECRET_ACCESS_KEY))
        found |= {"s3.access-key-id": keys[ACCESS_KEY_ID], "s3.secret-access-key": keys[SECRET_ACCESS_KEY]}
    return found


def _store_conf(prefix: str, store: ObjectStore, secrets: Path | None) -> dict[str, str]:
    conf = {f"{prefix}aws.credentials.provider": _ENVIRONMENT_AND_POD_PROVIDERS}
    if store.endpoint is not None:
        # Buckets in the path of the URL need no DNS name each.
        conf |= {f"{prefix}endpoint": store.endpoint, f"{prefix}path.style.access": "true"}
    if store.endpoint is not None or store.region is not None:
        conf[f"{prefix}endpoint.region"] = store.region or _DEFAULT_REGION
    if store.secret_ref is not None:
        keys = read_secret(secrets, store.secret_ref.name, (ACCESS_KEY_ID, SECRET_ACCESS_KEY))
        conf |= {
            f"{prefix}aws.credentials.provider": _SECRET_PROVIDER,
            f"{prefix}access.key": keys[ACCESS_KEY_ID],
            f"{prefix}secret.key": keys[SECRET_ACCESS_KEY],
        }
    return conf


def _sink_paths(sink: Sink) -> Iterator[str]:
    """Paths or URLs; empty for a catalog without `warehouse`."""
    if (files := sink.parquet or sink.delta) is not None:
        yield files.path
    if sink.iceberg is not None and sink.iceberg.catalog is not None:
        yield sink.iceberg.catalog.warehouse or ""
