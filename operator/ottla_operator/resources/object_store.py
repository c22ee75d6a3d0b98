"""Object stores with the interface of S3."""

from typing import Annotated, Final

from msgspec import Meta

from ottla_operator.resources.common import ObjectRef
from ottla_operator.resources.model import Model, doc

ACCESS_KEY_ID, SECRET_ACCESS_KEY = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
"""Keys of a Secret with credentials, and environment variables of every client of S3."""
SCHEMES: Final = ("s3a://", "s3://")
ENDPOINT_URL: Final = r"^https?://[^/]+/?$"

EndpointUrl = Annotated[str, Meta(max_length=512, pattern=ENDPOINT_URL)]
Endpoint = Annotated[
    EndpointUrl | None,
    doc("URL of an S3-compatible store, such as https://minio.example.com:9000. Defaults to AWS."),
]
S3Credentials = Annotated[
    ObjectRef | None,
    doc(
        f"Secret with {ACCESS_KEY_ID} and {SECRET_ACCESS_KEY}. Defaults to the identity of the pods, or with "
        "`ottla up` to the environment variables of these names."
    ),
]


class ObjectStore(Model, frozen=True):
    """S3-compatible store of sinks' files and tables, and of a checkpoint without a store of its
    own.
    """

    endpoint: Endpoint = None
    region: Annotated[
        Annotated[str, Meta(max_length=64)] | None,
        doc("Region of the buckets. With an endpoint it defaults to us-east-1."),
    ] = None
    secret_ref: S3Credentials = None


class Bucket(Model, frozen=True):
    """Folder in a bucket of an S3-compatible store."""

    bucket: Annotated[str, Meta(min_length=3, max_length=63, description="Name of the bucket.")]
    prefix: Annotated[
        Annotated[str, Meta(max_length=512)] | None, doc("Folder in the bucket. Defaults to the pipeline's name.")
    ] = None
    endpoint: Annotated[
        EndpointUrl | None,
        doc("URL of the bucket's store. Defaults to the pipeline's s3.endpoint."),
    ] = None
    secret_ref: Annotated[
        ObjectRef | None,
        doc(f"Secret with {ACCESS_KEY_ID} and {SECRET_ACCESS_KEY}. Defaults to the pipeline's s3.secretRef."),
    ] = None

    def url(self, pipeline: str) -> str:
        """The folder's URL, for the pipeline of this name."""
        return f"s3a://{self.bucket}/{(self.prefix or pipeline).strip('/')}"


def is_s3(url: str) -> bool:
    return url.startswith(SCHEMES)
