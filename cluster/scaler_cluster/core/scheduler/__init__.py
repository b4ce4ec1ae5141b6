"""The scheduler: which worker runs which task, when, and what becomes of it if something dies.

Theory of operation
-------------------

The scheduler knows every peer: clients (as sessions), workers, the supervisors of machines and the
object storages. It keeps contiguous tasks of a session together as a *run* as long as they share
their story. A run waits in a ready queue, lies with one worker, or has ended. The nodes of a graph
are in a run only while a worker has them.

``scheduler.py`` has the doors. The shell calls ``receive`` with what a peer sent, ``peer_lost``
when a peer is gone, and ``tick`` at the ``deadline``. Afterwards it calls ``take_actions``, which
gives out work and returns all messages to send; then ``take_gone`` names peers to forget. Each
message goes to the handlers of its sender's role: ``client_handlers.py``, ``worker_handlers.py``,
``supervisor_handlers.py`` and ``storage_handlers.py``. They check it, and pass it on.

The state is in ``table.py``: records of peers, runs and functions, and the moves that keep them in
step. Parts of the state have files of their own: ``backlog.py`` and ``queue.py`` (what waits),
``objects.py`` (large data, and which machines have it), ``adoption.py`` (what of that was there
before this scheduler), ``inventories.py`` (what of it is of no use), ``garbage.py`` (what is to be
removed soon), ``outbox.py`` (what is to be sent), ``answers.py`` (what clients are told),
``session.py`` and ``journal.py`` (lines for the log).

The decisions are made in:

- ``dispatch.py``: which worker gets which tasks. It gives work by credit: a worker has a few
  milliseconds of work ahead, by measured durations. ``pools.py`` keeps the workers that want work,
  ``assignment.py`` sends a run with all that it needs.
- ``rebalance.py``: what is asked back from a loaded worker. ``spares.py``: which workers take the
  place of blocked ones. ``unplaced.py``: what becomes of tasks that no worker can run.
  ``admission.py``: how many tasks clients may send. ``quotas.py``: which of them are too many.
- ``actors.py``: which worker an actor gets, what it is given, and when it ends.
- ``outcomes.py``: what a worker's report does to its tasks. ``failures.py``, ``stopping.py`` and
  ``deaths.py``: how tasks fail, are stopped, or survive their worker. ``worker_runs.py`` cuts runs
  and takes them off their worker. ``graph_moves.py``: what all this does to graphs.

Locks, queues and the like are apart from tasks: ``coordination.py`` says who gets what in which
turn, ``places.py`` has what names stand for, ``stakes.py`` what clients have of it.
``coordination_handlers.py`` is their door; a client that leaves ends its leases in
``client_handlers.py``.

An :class:`~scaler_cluster.core.scheduler.observer.Observer` is told what happens. It does nothing
until the first watcher comes. Then ``feed.py`` makes a monitor, which publishes snapshots and
events. ``invariants.py`` says what must be true of the state after every step.
"""
