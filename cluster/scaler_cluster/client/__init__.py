"""The client: what runs in a user's program.

Theory of operation
-------------------

A :class:`~scaler_cluster.client.client.Client` (and ``ScalerExecutor``) turns calls of the user
into calls of a :class:`~scaler_cluster.client.session.Session`. A session belongs to one scheduler
and serves all threads of the process. Its parts:

- ``connection.py`` has everything that must move together: link, exchange, client core. No other
  part locks these. Each of its methods takes the lock, calls the core, and lets go. ``pump``
  sends what is to be sent, takes in what has arrived, and returns *events*: futures to settle, text
  to print, inputs that the scheduler asks for, the end of the cluster. ``handshake.py`` is the
  first exchange of messages.
- ``settler.py`` handles events, in the thread that called ``pump``, and without the lock: futures
  have locks of their own, and wake threads of the user. Callbacks of futures run in the I/O thread.
- ``waiter.py``: a thread that waits for a result reads the socket itself, which saves the hand-off
  from another thread. Only one thread does so at a time: it *leads*. Others that wait *follow*, and
  the leader wakes them (``leader_follower.py``).
- ``io_thread.py``: the I/O thread reads the socket while no thread leads. It sends heartbeats, runs
  callbacks, notices that the scheduler is silent or a child process is dead, and ends the session.

``connected.py`` is what every client has whatever it submits: its way to the cluster and out of it.
``views.py`` makes of a client or an executor the same with other options; ``call_options.py`` is
what was asked for: by a view, by keywords, by a decorated function.

What becomes of a call:

- ``call_pickler.py`` and ``function_pickler.py`` make bytes of it; ``serializer.py`` is the user's
  own way to do so. Large buffers are stored (``objects/sent.py``).
- A *submit* has a future (``future.py``). The core calls it a waiter, and never looks into it.
- With a *cache* (``cache.py``, ``kept_calls.py``) a call is looked up first, by digests that are
  the same in every process (``lasting_digest.py``). What comes back is written to a file
  (``result_files.py``) before its future is settled.
- A *named call* (``named_calls.py``) is for workers in any language. Its function has no pickle:
  who asks for that gets a NamedCallError, and the session then asks for the call by name.
- A *map* (``map.py``) has no futures. Its results land in a ``MapCall``, under the lock of the
  connection, and its iterator takes them out.
- A *graph* (``live_graphs.py``) is put in order by ``graph.py`` and packed by ``packing.py``.
  ``dask_graph.py`` is Dask's door, ``dask_arrangement.py`` reads its tasks. ``input_supplier.py``
  sends the scheduler the results of futures that graphs take as inputs.

- A *lock*, a queue and the like (``coordination.py``) ask through ``Session.ask``, which waits for
  the answer as for a result.

Rules: a signal may interrupt user code anywhere, but no exchange with the scheduler: that runs with
``deferred`` of ``process/interrupts.py``. Finalizers take no lock: they put a note into a queue,
which the next ``pump`` empties. A forked child process uses nothing of its parent's session.

In a worker the same classes serve the tasks that submit tasks: the worker sets
``worker_context.open_session``, and a client that is made or unpickled there finds the session of
the worker's tasks (``runtime/nested.py``).
"""
