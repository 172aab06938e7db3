"""An object store that speaks the protocol of S3, by the library boto3.

boto3 finds the credentials itself: in the environment (`AWS_ACCESS_KEY_ID`,
`AWS_SECRET_ACCESS_KEY`), in `~/.aws`, or from the machine's role.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.server.tiered.objects import TierError

_TRIES = 3
_CONNECT_S = 5
_READ_S = 10


def s3_objects(bucket: str, endpoint: str | None, region: str | None) -> "S3Objects":
    """
    Return a bucket as an object store. Nothing is asked yet.

    :param endpoint: URL of the server; None for Amazon's.
    :raises ConfigurationError: boto3 is not installed, or does not accept these settings.
    """
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError as error:
        raise ConfigurationError(
            f"tiered storage needs boto3 ({error}): pip install 'rmq-ha[s3]'"
        ) from error
    settings = Config(
        connect_timeout=_CONNECT_S,
        read_timeout=_READ_S,
        retries={"max_attempts": _TRIES, "mode": "standard"},
        # Other servers than Amazon's do not all know the checksums that boto3 sends by itself.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    try:
        client = boto3.client("s3", endpoint_url=endpoint, region_name=region, config=settings)
    except (BotoCoreError, ValueError) as error:
        raise ConfigurationError(f"boto3 does not accept the settings: {error}") from error
    return S3Objects(client, bucket, (BotoCoreError, ClientError, OSError))


class S3Objects:
    """
    The objects of a bucket.

    :param client: a client of boto3 for S3. Threads may share it.
    :param failures: the exceptions of that client.
    """

    def __init__(self, client: Any, bucket: str, failures: tuple[type[Exception], ...]) -> None:
        self._client = client
        self._bucket = bucket
        self._failures = failures

    def put(self, key: str, data: bytes) -> None:
        self._ask("write", key, self._client.put_object, Body=data)

    def get(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        extra = {} if size is None else {"Range": f"bytes={start}-{start + size - 1}"}
        answer = self._ask("read", key, self._client.get_object, **extra)
        with self._naming_failures("read", key):
            data: bytes = answer["Body"].read()
        return data

    def keys(self, prefix: str) -> list[str]:
        keys: list[str] = []
        with self._naming_failures("list", prefix):
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=prefix):
                keys.extend(item["Key"] for item in page.get("Contents", ()))
        return sorted(keys)

    def delete(self, key: str) -> None:
        self._ask("delete", key, self._client.delete_object)

    def begin(self, key: str) -> str:
        upload: str = self._ask("write", key, self._client.create_multipart_upload)["UploadId"]
        return upload

    def put_part(self, key: str, upload: str, number: int, data: bytes) -> str:
        tag: str = self._ask(
            "write", key, self._client.upload_part, UploadId=upload, PartNumber=number, Body=data
        )["ETag"]
        return tag

    def finish(self, key: str, upload: str, tags: list[str]) -> None:
        parts = [{"PartNumber": at, "ETag": tag} for at, tag in enumerate(tags, 1)]
        self._ask(
            "write",
            key,
            self._client.complete_multipart_upload,
            UploadId=upload,
            MultipartUpload={"Parts": parts},
        )

    def abandon(self, key: str, upload: str) -> None:
        self._ask("write", key, self._client.abort_multipart_upload, UploadId=upload)

    def _ask(self, verb: str, key: str, call: Callable[..., Any], **arguments: Any) -> Any:
        with self._naming_failures(verb, key):
            return call(Bucket=self._bucket, Key=key, **arguments)

    @contextmanager
    def _naming_failures(self, verb: str, key: str) -> Iterator[None]:
        try:
            yield
        except self._failures as error:
            raise TierError(f"cannot {verb} {key} in bucket {self._bucket}: {error}") from error
