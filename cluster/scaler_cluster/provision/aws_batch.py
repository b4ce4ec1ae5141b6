"""Calls that AWS Batch runs: each is a job, or one of the jobs of an array.

Calls are collected for a moment: one alone becomes a single job, several become an array job, which
is one request for all. A job reads its call from its parameters, or from S3 if it is large, and
writes what it returned to S3: see ``batch_job.py``.
"""

from __future__ import annotations

import base64
import gzip
import logging
import queue
import re
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

import cloudpickle

from scaler_cluster.errors import ClusterUnreachableError, RemoteCallError
from scaler_cluster.provision.aws import asking, clients, code_of
from scaler_cluster.provision.backend import BackendError
from scaler_cluster.provision.batch_job import GZIP_BYTES, INDEX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from scaler_cluster.config.proxy_settings import BatchSettings
    from scaler_cluster.provision.remote import RemoteCall

log = logging.getLogger("scaler.proxy")

COLLECT_S = 0.5
"""Calls that come within this are one array."""
POLL_S = 2.0
"""How often jobs are looked at."""
ARRAY_MAX = 10_000
INLINE_BYTES = 28 * 1024
"""A longer payload does not fit into the parameters of a job."""
DESCRIBED_MAX = 100
"""Jobs of one request."""
UNKNOWN_S = 60.0
"""A job that Batch does not know after this never was, or is forgotten."""
NAME_CHARS = 50
LOG_GROUP = "/aws/batch/job"
LOG_LINES = 20
EXPIRED = ("ExpiredToken", "ExpiredTokenException", "RequestExpired")
TRANSFERS = 8
"""Objects that are sent or fetched at once."""


@dataclass
class _Job:
    call: RemoteCall
    submitted_at: float
    keys: tuple[str, ...]
    """Of what was sent for it."""


class BatchRunner:
    """Submits jobs to a queue, and looks what becomes of them."""

    def __init__(self, settings: BatchSettings, _lost: Callable[[str], object]) -> None:
        self._settings = settings
        self._clients = clients(settings, "batch", "s3", "logs")
        self._new: queue.SimpleQueue[RemoteCall | None] = queue.SimpleQueue()
        self._jobs: dict[str, _Job] = {}
        self._lock = threading.Lock()
        """Held while the jobs are changed."""
        self._over = threading.Event()
        self._told = ""
        self._check()
        self._transfers = ThreadPoolExecutor(TRANSFERS, "transfer")
        self._threads = [threading.Thread(target=one) for one in (self._collect, self._poll)]
        for one in self._threads:
            one.start()

    def _check(self) -> None:
        """Raise ClusterUnreachableError if something is not there."""
        made = self._settings
        wanted = (
            ("batch", "job_queue", "describe_job_queues", {"jobQueues": [made.job_queue]}),
            ("batch", "job_definition", "describe_job_definitions", _definition(made)),
            ("s3", "s3_bucket", "head_bucket", {"Bucket": made.s3_bucket}),
        )
        for service, name, method, arguments in wanted:
            what = f"{name} {getattr(made, name)}"
            try:
                with asking(what):
                    found = self._ask(service, method, **arguments)
            except BackendError as error:
                raise ClusterUnreachableError(f"AWS Batch: {error}") from None
            if service == "batch" and not any(found[one] for one in found if one.startswith("job")):
                raise ClusterUnreachableError(f"AWS Batch: there is no {what}")

    def submit(self, call: RemoteCall) -> None:
        """Have a call run."""
        self._new.put(call)

    def cancel(self, call: RemoteCall) -> None:
        """Terminate the job of a call; one that is not submitted yet will not be."""
        with self._lock:
            jobs = [job for job, one in self._jobs.items() if one.call is call]
        for job in jobs:
            self._terminate(job)

    def _terminate(self, job: str) -> None:
        try:
            with asking(f"terminating {job}"):
                self._ask("batch", "terminate_job", jobId=job, reason="nobody wants its result")
        except BackendError as error:
            self._tell(str(error))

    def close(self) -> None:
        """End the threads."""
        self._over.set()
        self._new.put(None)
        for one in self._threads:
            one.join()
        self._transfers.shutdown()

    def _ask(self, service: str, method: str, **arguments: Any) -> Any:
        """Make a request, with new clients if the credentials have expired."""
        from botocore.exceptions import ClientError

        number = ("batch", "s3", "logs").index(service)
        try:
            return getattr(self._clients[number], method)(**arguments)
        except ClientError as error:
            if code_of(error) not in EXPIRED:
                raise
        self._clients = clients(self._settings, "batch", "s3", "logs")
        return getattr(self._clients[number], method)(**arguments)

    def _tell(self, text: str) -> None:
        """Say in the log what goes wrong, once."""
        if text != self._told:
            self._told = text
            log.warning("ProxyWorker: %s", text)

    # -- jobs are submitted --------------------------------------------------------------------

    def _collect(self) -> None:
        """Submit what comes, as long as the runner is there."""
        while (first := self._new.get()) is not None:
            calls, until = [first], monotonic() + COLLECT_S
            while len(calls) < ARRAY_MAX and (left := until - monotonic()) > 0:
                try:
                    call = self._new.get(timeout=left)
                except queue.Empty:
                    break
                if call is None:
                    return
                calls.append(call)
            wanted = [one for one in calls if not one.is_over]
            if not wanted:
                continue
            try:
                self._submit(wanted)
            except BackendError as error:
                for one in wanted:
                    one.fail(RemoteCallError(f"AWS Batch takes no job: {error}"))
            except Exception as error:
                log.exception("ProxyWorker: a job cannot be submitted")
                for one in wanted:
                    one.fail(RemoteCallError(f"the job cannot be submitted: {error!r}"))

    def _submit(self, calls: Sequence[RemoteCall]) -> None:
        """Submit a job, or an array of them; raises BackendError."""
        payloads = [_payload_of(one) for one in calls]
        is_compressed = max(map(len, payloads)) > GZIP_BYTES
        if is_compressed:
            payloads = [gzip.compress(one) for one in payloads]
        suffix = ".pkl.gz" if is_compressed else ".pkl"
        name, prefix = uuid.uuid4().hex[:12], self._settings.s3_prefix
        told = {"task_id": name, "payload": "none", "s3_key": "none"}
        array: dict[str, Any] = {}
        keys: tuple[str, ...] = ()
        if len(calls) > 1:
            told |= {"task_id": "array", "s3_key": f"{prefix}/array/{name}/{INDEX}{suffix}"}
            array = {"arrayProperties": {"size": len(calls)}}
            keys = tuple(f"{prefix}/array/{name}/{n}{suffix}" for n in range(len(calls)))
        elif len(inline := base64.b64encode(payloads[0])) <= INLINE_BYTES:
            told["payload"] = inline.decode()
        else:
            told["s3_key"] = f"{prefix}/inputs/{name}{suffix}"
            keys = (told["s3_key"],)
        bucket = self._settings.s3_bucket
        with asking(f"sending to the bucket {bucket}"):
            list(self._transfers.map(self._put, keys, payloads))
        kind = "array-" if array else ""
        with asking(f"submitting to {self._settings.job_queue}"):
            answer = self._ask(
                "batch",
                "submit_job",
                jobName=f"{_name_of(calls[0])}-{kind}{name}",
                jobQueue=self._settings.job_queue,
                jobDefinition=self._settings.job_definition,
                parameters={
                    **told,
                    "compressed": "1" if is_compressed else "0",
                    "s3_bucket": bucket,
                    "s3_prefix": prefix,
                },
                timeout={"attemptDurationSeconds": self._settings.job_timeout_minutes * 60},
                **array,
            )
        job, now = str(answer["jobId"]), monotonic()
        with self._lock:
            for index, call in enumerate(calls):
                one = f"{job}:{index}" if array else job
                self._jobs[one] = _Job(call, now, keys[index : index + 1])
        for index, call in enumerate(calls):
            if call.is_over:
                # It was cancelled meanwhile, when it had no job.
                self._terminate(f"{job}:{index}" if array else job)

    def _put(self, key: str, data: bytes) -> None:
        self._ask("s3", "put_object", Bucket=self._settings.s3_bucket, Key=key, Body=data)

    # -- and end -------------------------------------------------------------------------------

    def _poll(self) -> None:
        """Look what becomes of the jobs, as long as the runner is there."""
        while not self._over.wait(POLL_S):
            with self._lock:
                jobs = list(self._jobs)
            try:
                for start in range(0, len(jobs), DESCRIBED_MAX):
                    self._look(jobs[start : start + DESCRIBED_MAX])
            except BackendError as error:
                self._tell(str(error))
            except Exception:
                log.exception("ProxyWorker: the jobs cannot be looked at")

    def _look(self, jobs: Sequence[str]) -> None:
        """Look at some jobs, and end those calls whose jobs have ended; raises BackendError."""
        with asking("looking at the jobs"):
            found = self._ask("batch", "describe_jobs", jobs=list(jobs))["jobs"]
        ended = [one for one in found if one["status"] in {"SUCCEEDED", "FAILED"}]
        list(self._transfers.map(self._end, ended))
        known, now = {one["jobId"] for one in found}, monotonic()
        for job in jobs:
            if job not in known and now - self._jobs[job].submitted_at > UNKNOWN_S:
                call = self._drop(job).call
                call.fail(RemoteCallError(f"AWS Batch does not know the job {job} any more"))

    def _drop(self, job: str) -> _Job:
        with self._lock:
            return self._jobs.pop(job)

    def _end(self, found: dict[str, Any]) -> None:
        """Tell a call what became of its job, and remove what lies in S3 for it."""
        job = str(found["jobId"])
        call = self._jobs[job].call
        try:
            # Whoever cancelled it does not wait for an answer.
            if not call.is_over:
                data = self._result_of(job)
                if found["status"] == "SUCCEEDED" and data is not None:
                    call.complete(data)
                else:
                    call.fail(RemoteCallError(self._story_of(job, found, data)))
        except BackendError as error:
            # It is looked at again.
            self._tell(str(error))
            return
        keys = self._drop(job).keys
        results = (f"{self._result_key(job)}{suffix}" for suffix in ("", ".gz"))
        self._remove([*keys, *results])

    def _result_key(self, job: str) -> str:
        return f"{self._settings.s3_prefix}/results/{job}.pkl"

    def _result_of(self, job: str) -> bytes | None:
        """Return what a job has written; None: nothing. Raises BackendError."""
        key = self._result_key(job)
        if (data := self._get(key)) is not None:
            return data
        data = self._get(f"{key}.gz")
        return gzip.decompress(data) if data is not None else None

    def _get(self, key: str) -> bytes | None:
        from botocore.exceptions import ClientError

        with asking(f"reading {key}"):
            try:
                found = self._ask("s3", "get_object", Bucket=self._settings.s3_bucket, Key=key)
                data: bytes = found["Body"].read()
            except ClientError as error:
                if code_of(error) in {"NoSuchKey", "404"}:
                    return None
                raise
        return data

    def _remove(self, keys: Iterable[str]) -> None:
        objects = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        try:
            with asking("removing results"):
                self._ask("s3", "delete_objects", Bucket=self._settings.s3_bucket, Delete=objects)
        except BackendError as error:
            self._tell(str(error))

    def _story_of(self, job: str, found: dict[str, Any], data: bytes | None) -> str:
        """Return why a job has no result, in the words of Batch, the job and its log."""
        container = found.get("container", {})
        reasons = [str(found.get("statusReason", "")), str(container.get("reason", ""))]
        why = "; ".join(filter(None, reasons)) or "no reason is given"
        if found["status"] == "SUCCEEDED":
            why = "it succeeded, and wrote no result: does its definition run the right program?"
        text = f"the job {job} of AWS Batch failed: {why}"
        if data is not None:
            text += f"\n{_error_of(data)}"
        stream = container.get("logStreamName")
        return text + (self._log_of(stream) if stream else "")

    def _log_of(self, stream: str) -> str:
        """Return the end of a job's log, if it can be had."""
        where = {"logGroupName": LOG_GROUP, "logStreamName": stream}
        try:
            with asking("reading the log"):
                found = self._ask("logs", "get_log_events", **where, limit=LOG_LINES)
        except BackendError as error:
            return f"\n(its log cannot be read: {error})"
        lines = "\n".join(one["message"] for one in found["events"])
        return f"\nthe end of its log:\n{lines}" if lines else ""


def _definition(made: BatchSettings) -> dict[str, Any]:
    """Return how to ask for a job definition: by its name, or by name and revision, or by ARN."""
    if ":" in made.job_definition:
        return {"jobDefinitions": [made.job_definition]}
    return {"jobDefinitionName": made.job_definition, "status": "ACTIVE"}


def _payload_of(call: RemoteCall) -> bytes:
    about = {"task_id": uuid.uuid4().hex, "source": "", "function": call.function}
    data: bytes = cloudpickle.dumps({**about, "arguments": list(call.args)})
    return data


def _name_of(call: RemoteCall) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", call.name).lstrip("_-")[:NAME_CHARS] or "task"


def _error_of(data: bytes) -> str:
    """Return what a job has written of an error."""
    import pickle

    try:
        return str(pickle.loads(data)["traceback"])
    except Exception as error:
        return f"(what it wrote cannot be read: {error!r})"
