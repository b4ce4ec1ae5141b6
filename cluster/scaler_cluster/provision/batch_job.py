"""What a job of AWS Batch runs for a proxy: ``python -m scaler_cluster.provision.batch_job``.

It reads a call, from its command line or from S3, makes it, and writes what it returned to S3. It
needs cloudpickle and boto3 alone: an image may have a copy of this one file.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import os
import pickle
import sys
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

GZIP_BYTES = 4096
"""More than this is compressed."""
INDEX = "ARRAY_INDEX"
"""In the key of an array's payloads, stands for the index of the job."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the call of this job; return the exit status."""
    import boto3

    parser = argparse.ArgumentParser(description="Make the call of a job of AWS Batch.")
    for name in ("task_id", "payload", "compressed", "s3_bucket", "s3_prefix", "s3_key"):
        parser.add_argument(f"--{name}", default="")
    given = parser.parse_args(arguments)
    store = boto3.client("s3")
    key = f"{given.s3_prefix}/results/{os.environ['AWS_BATCH_JOB_ID']}.pkl"
    try:
        call = pickle.loads(_payload_of(given, store))
        result, status = _dumps(call["function"](*call["arguments"])), 0
    except BaseException as error:
        text = traceback.format_exc()
        sys.stderr.write(text)
        result, status = pickle.dumps({"error": repr(error), "traceback": text}), 1
    if len(result) > GZIP_BYTES:
        key, result = f"{key}.gz", gzip.compress(result)
    store.put_object(Bucket=given.s3_bucket, Key=key, Body=result)
    return status


def _payload_of(given: argparse.Namespace, store: Any) -> bytes:
    if given.s3_key not in {"", "none"}:
        key = given.s3_key.replace(INDEX, os.environ.get("AWS_BATCH_JOB_ARRAY_INDEX", ""))
        data = store.get_object(Bucket=given.s3_bucket, Key=key)["Body"].read()
    else:
        data = base64.b64decode(given.payload)
    return gzip.decompress(data) if given.compressed == "1" else bytes(data)


def _dumps(value: object) -> bytes:
    import cloudpickle

    data: bytes = cloudpickle.dumps(value)
    return data


if __name__ == "__main__":
    raise SystemExit(main())
