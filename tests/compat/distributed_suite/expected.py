"""Which of distributed's own tests, of 2021.7.0, do not pass here, each with the reason."""

from __future__ import annotations

ASYNC = "it calls coroutines, with an event loop of the client's or with workers of its own"
INSIDE = "it looks inside of distributed: attributes, messages or processes that are not documented"
METHOD = "it wants Dask's scheduler to be the client's very method"
OLDER = "it wants what Dask, pandas or distributed itself no longer do"
REFUSED = "it calls what docs/distributed-names.md refuses"
SPEED = "it wants tasks to be as fast as in threads"
TEXT = "it wants the words of an error or of a repr"
THEIRS = "it fails with distributed as well, which says so"
NOT_RUN = {ASYNC, INSIDE, OLDER, REFUSED, SPEED, THEIRS}
"""What cannot pass, whatever this client does. The others are run, and fail."""
OWN_WORKERS = {"test_run_sync"}
"""Tests that want workers that stay: one that is stopped with what it runs leaves its place."""

EXPECTED: dict[str, dict[str, str]] = {
    "test_actor": {
        "test_client_actions": ASYNC,
        "test_compute_sync": "it wants compute(actors=), which this client ignores",
        "test_one_thread_deadlock": INSIDE,
        "test_sync": TEXT,
        "test_worker_actions": ASYNC,
    },
    "test_as_completed": {
        "test_as_completed_cancel": INSIDE,
        "test_as_completed_cancel_last": ASYNC,
    },
    "test_client": {
        "test_Future_exception_sync_2": METHOD,
        "test_Future_release_sync": INSIDE,
        "test_annotations_compute_time": ASYNC,
        "test_async_with": ASYNC,
        "test_auto_normalize_collection_sync": THEIRS,
        "test_bad_address": "it has no keys for another machine, and is told so",
        "test_broadcast": INSIDE,
        "test_client_async_before_loop_starts": ASYNC,
        "test_client_connectionpool_semaphore_loop": INSIDE,
        "test_client_replicate_sync": REFUSED,
        "test_client_repr_closed_sync": "it wants HTML of a client",
        "test_client_repr_html": REFUSED,
        "test_client_sync_with_async_def": ASYNC,
        "test_dashboard_link": "it wants the link of a dashboard whose port is configured",
        "test_default_get": METHOD,
        "test_diagnostic_nbytes_sync": REFUSED,
        "test_diagnostic_ui": REFUSED,
        "test_direct_sync": INSIDE,
        "test_direct_to_workers": INSIDE,
        "test_directed_scatter_sync": INSIDE,
        "test_get_client_no_cluster": INSIDE,
        "test_get_client_sync": REFUSED,
        "test_get_returns_early": INSIDE,
        "test_get_versions": "it wants the versions of each worker",
        "test_global_clients": INSIDE,
        "test_informative_error_on_cluster_type": TEXT,
        "test_normalize_collection_with_released_futures": REFUSED,
        "test_open_close_many_workers": INSIDE,
        "test_persist": INSIDE,
        "test_rebalance_sync": REFUSED,
        "test_reconnect": INSIDE,
        "test_recreate_error_not_error": INSIDE,
        "test_recreate_error_sync": INSIDE,
        "test_recreate_task_sync": INSIDE,
        "test_repr": TEXT,
        "test_repr_sync": TEXT,
        "test_run_coroutine_sync": "it wants run(wait=False), which is refused",
        "test_start_is_idempotent": REFUSED,
        "test_turn_off_pickle": ASYNC,
        "test_use_synchronous_client_in_async_context": ASYNC,
        "test_warn_executor": OLDER,
        "test_write_scheduler_file": "it wants an error if the file is there",
    },
    "test_client_executor": {
        "test_map": SPEED,
        "test_pure": "it wants equal calls of an executor to be one, with pure=True",
        "test_retries": "it counts calls by worker, and wants each try in another one",
        "test_shutdown": "it wants shutdown(wait=False) to cancel what runs",
        "test_unsupported_arguments": TEXT,
        "test_workers": REFUSED,
    },
    "test_locks": {"test_lock_sync": REFUSED},
    "test_publish": {
        "test_datasets_contains": REFUSED,
        "test_datasets_delitem": REFUSED,
        "test_datasets_getitem": REFUSED,
        "test_datasets_getitem_default": REFUSED,
        "test_datasets_iter": REFUSED,
        "test_datasets_keys": REFUSED,
        "test_datasets_republish": REFUSED,
        "test_datasets_setitem": REFUSED,
        "test_unpublish_multiple_datasets_sync": REFUSED,
        "test_unpublish_sync": REFUSED,
    },
    "test_queues": {
        "test_queue_in_task": INSIDE,
        "test_sync": "it wants futures in a queue",
    },
    "test_resources": {"test_collections_get": INSIDE},
    "test_semaphore": {
        "test_close_sync": "it wants a semaphore that is closed to be of no use",
        "test_worker_dies": REFUSED,
    },
    "test_variable": {
        "test_future_erred_sync": "it wants a future in a variable",
        "test_sync": "it wants a future in a variable",
        "test_variable_in_task": INSIDE,
    },
    "test_worker_client": {
        "test_dont_override_default_get": METHOD,
        "test_secede_without_stealing_issue_1262": ASYNC,
        "test_timeout": TEXT,
    },
}
"""By their module; one that is run and passes is a mistake."""
