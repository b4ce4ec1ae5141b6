"""The processes of a cluster: everything that waits, and all that tasks need around them.

Theory of operation
-------------------

Each role is a *core* that decides (in ``core/``) and a *shell* that does (here). The shell waits
for its sockets, its children and its timers. When something has happened, it has one *turn*: it
hands the core what has arrived, with the time; it takes the core's actions; it does them. All that
goes to one peer in a turn goes in one envelope, so under load there are more messages in each
envelope and not more envelopes. After sending, a shell looks for messages again before it waits:
ZeroMQ's descriptor signals a change only once, and sending may have consumed that signal.

- *Scheduler*: ``scheduler.py`` binds the sockets and runs the event loop; ``scheduler_shell.py`` is
  the shell. With it go the feed for monitors (``feed_encoder.py``) and object storages: a child
  (``storage_process.py``), or servers of their own (``storages.py``).
- *Object storage*: ``storage.py``, and ``storage_server.py`` for one that runs by itself. Workers
  and clients of the same machine read and write the objects without asking it; it removes them, and
  carries them to other machines.
- *Supervisor*: ``supervisor.py``, one on each machine. It runs no user code, so it can always tell
  the scheduler what became of a worker. It starts workers through the fork server
  (``forkserver.py``), a copy of itself that was made before there were threads or sockets: a fork
  is ready much sooner than a new interpreter that imports the engine. The supervisor reads the
  workers' stderr (``stderr.py``), their memory and CPU time (``vitals.py``), and in shared memory
  (``worker_slots.py``) which task each of them runs: so it can say which task a worker died of.
- *Worker*: ``worker_process.py`` is its life from the fork to the end, ``worker.py`` the shell, in
  whose main thread tasks run (``task_run.py``: from pickle to pickle; ``named_run.py``: by name). A
  second thread acts while a task runs (``control_thread.py``), and a signal interrupts one
  (``task_interrupts.py``). Tasks that submit tasks find a session there (``nested.py``,
  ``inline_runner.py``). What nodes of graphs return is kept for other nodes (``node_results.py``),
  or sent to them (``sharing.py``). The others keep one task from disturbing the next: copies of
  what tasks call (``callees.py``, ``pools.py``), their output (``output.py``), their threads,
  memory and profile.

Each process is told all it needs when it starts, see ``process/``. A bug in a core is logged with
its traceback and drops nobody; a peer that breaks the protocol is dropped, and nobody else notices.
"""
