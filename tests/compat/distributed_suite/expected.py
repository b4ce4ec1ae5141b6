"""Which of distributed's own tests, of 2021.7.0, do not pass here, each with the reason."""

from __future__ import annotations

INSIDE = "it looks inside of distributed: attributes, messages or processes that are not documented"
CROWD = "it wants more tasks at once than there are workers"
KEYS = "it makes futures of keys, or pickles them"
OLDER = "it wants what Dask, pandas or distributed itself no longer do"
REFUSED = "it calls what docs/distributed-names.md refuses"
SERIALIZERS = "it wants values to be sent by other means than pickle"
SPEED = "it wants tasks to be as fast as in threads"
TEXT = "it wants the words of an error or of a repr"
THEIRS = "it fails with distributed as well, which says so"
NOT_RUN = {CROWD, INSIDE, OLDER, REFUSED, SPEED, THEIRS}
"""What cannot pass, whatever this client does. The others are run, and fail."""
OWN_WORKERS = {"test_run_sync"}
"""Tests that want workers that stay: one that is stopped with what it runs leaves its place."""

EXPECTED: dict[str, dict[str, str]] = {
    "test_actor": {
        "test_client_actions": INSIDE,
        "test_compute_sync": REFUSED,
        "test_dir": "it wants attributes of the class, too",
        "test_one_thread_deadlock": INSIDE,
        "test_sync": TEXT,
        "test_waiter": "it wants coroutines of an actor to run beside one another",
        "test_worker_actions": INSIDE,
    },
    "test_as_completed": {
        "test_as_completed_cancel": INSIDE,
        "test_as_completed_cancel_last": REFUSED,
        "test_as_completed_with_results_no_raise_async": REFUSED,
    },
    "test_client": {
        "test_Client_clears_references_after_restart": INSIDE,
        "test_Future_release": INSIDE,
        "test_Future_release_sync": INSIDE,
        "test__persist": INSIDE,
        "test_annotations_blockwise_unpack": OLDER,
        "test_annotations_compute_time": INSIDE,
        "test_as_completed_async_for_cancel": REFUSED,
        "test_as_completed_condition_loop": REFUSED,
        "test_async_whowhat": REFUSED,
        "test_async_with": INSIDE,
        "test_auto_normalize_collection_sync": THEIRS,
        "test_bad_address": "it has no keys for another machine, and is told so",
        "test_badly_serialized_input": TEXT,
        "test_broadcast": INSIDE,
        "test_client_async_before_loop_starts": INSIDE,
        "test_client_connectionpool_semaphore_loop": INSIDE,
        "test_client_replicate_sync": REFUSED,
        "test_client_repr_html": REFUSED,
        "test_client_sync_with_async_def": REFUSED,
        "test_client_timeout": INSIDE,
        "test_client_with_name": INSIDE,
        "test_compute_persisted_retries": "it wants what was persisted to run again",
        "test_config_inherited_by_subprocess": "it wants workers to have the program's configuration",
        "test_config_scheduler_address": INSIDE,
        "test_dashboard_link": "it wants the link of a dashboard whose port is configured",
        "test_de_serialization": SERIALIZERS,
        "test_de_serialization_none": SERIALIZERS,
        "test_default_get": "it wants a client to set Dask's `shuffle`",
        "test_diagnostic_nbytes_sync": REFUSED,
        "test_diagnostic_ui": REFUSED,
        "test_direct_async": INSIDE,
        "test_direct_sync": INSIDE,
        "test_direct_to_workers": INSIDE,
        "test_directed_scatter_sync": INSIDE,
        "test_file_descriptors_dont_leak": INSIDE,
        "test_future_auto_inform": KEYS,
        "test_futures_in_subgraphs": OLDER,
        "test_futures_of_get": OLDER,
        "test_futures_of_sorted": OLDER,
        "test_garbage_collection": INSIDE,
        "test_get_client": INSIDE,
        "test_get_client_no_cluster": INSIDE,
        "test_get_foo_lost_keys": INSIDE,
        "test_get_releases_data": INSIDE,
        "test_get_returns_early": INSIDE,
        "test_global_clients": INSIDE,
        "test_long_error": "it wants the text of an exception to be cut",
        "test_long_traceback": INSIDE,
        "test_mixed_compression": INSIDE,
        "test_mixing_clients": "it wants futures of another client to be refused, which are taken",
        "test_normalize_collection": REFUSED,
        "test_normalize_collection_dask_array": REFUSED,
        "test_normalize_collection_with_released_futures": REFUSED,
        "test_open_close_many_workers": INSIDE,
        "test_performance_report": TEXT,
        "test_persist": INSIDE,
        "test_profile_bokeh": REFUSED,
        "test_profile_keys": REFUSED,
        "test_profile_server": INSIDE,
        "test_rebalance_sync": REFUSED,
        "test_reconnect": INSIDE,
        "test_recreate_error_not_error": INSIDE,
        "test_recreate_error_sync": INSIDE,
        "test_recreate_task_sync": INSIDE,
        "test_released_dependencies": INSIDE,
        "test_repr": TEXT,
        "test_restart_timeout_is_logged": INSIDE,
        "test_retry": INSIDE,
        "test_retry_dependencies": INSIDE,
        "test_run_coroutine_deprecated": OLDER,
        "test_run_handles_picklable_data": INSIDE,
        "test_scatter_direct_empty": "it wants no values to be sent before there are workers",
        "test_scatter_raises_if_no_workers": "it wants no values to be sent before there are workers",
        "test_serialize_future": KEYS,
        "test_set_as_default": INSIDE,
        "test_shutdown": INSIDE,
        "test_shutdown_localcluster": INSIDE,
        "test_status": INSIDE,
        "test_tokenize_on_futures": INSIDE,
        "test_turn_off_pickle": SERIALIZERS,
        "test_upload_file_egg": OLDER,
        "test_upload_file_new_worker": INSIDE,
        "test_upload_file_no_extension": "it wants files of any kind to be sent",
        "test_upload_file_refresh_delayed": INSIDE,
        "test_use_synchronous_client_in_async_context": INSIDE,
        "test_wait_for_workers": INSIDE,
        "test_warn_executor": OLDER,
        "test_warn_when_submitting_large_values": "it wants a warning of large arguments",
        "test_worker_aliases": INSIDE,
    },
    "test_client_executor": {
        "test_map": SPEED,
        "test_pure": "it wants equal calls of an executor to be one, with pure=True",
        "test_retries": "it counts calls by worker, and wants each try in another one",
        "test_shutdown": "it wants shutdown(wait=False) to cancel what runs",
        "test_workers": REFUSED,
    },
    "test_locks": {
        "test_acquires_blocking": OLDER,
        "test_errors": OLDER,
    },
    "test_publish": {
        "test_deserialize_client": "it wants the scheduler at an address of TCP",
        "test_pickle_safe": SERIALIZERS,
        "test_publish_multiple_datasets": INSIDE,
    },
    "test_queues": {
        "test_queue_in_task": INSIDE,
        "test_race": CROWD,
    },
    "test_resources": {
        "test_collections_get": INSIDE,
        "test_resources_from_config": "it wants each worker to have resources of its own, which those of a machine share",
        "test_resources_from_python_override_config": "it wants each worker to have resources of its own, which those of a machine share",
    },
    "test_semaphore": {
        "test_async_ctx": INSIDE,
        "test_release_semaphore_after_timeout": INSIDE,
        "test_worker_dies": INSIDE,
    },
    "test_variable": {
        "test_variable_in_task": INSIDE,
    },
    "test_worker_client": {
        "test_local_client_warning": OLDER,
        "test_same_loop": INSIDE,
        "test_secede_without_stealing_issue_1262": INSIDE,
        "test_timeout": TEXT,
        "test_worker_client_rejoins": INSIDE,
    },
}
"""By their module; one that is run and passes is a mistake. Coroutines that look inside are found by
the plugin."""
