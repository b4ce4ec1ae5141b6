"""What the scheduler remembers of tasks and peers, and the rules that need nothing else.

Theory of operation
-------------------

A record is plain data: it belongs to the scheduler, which changes it. The records know nothing of
graphs, queues or messages under way; ``core.graph`` and ``core.scheduler`` build on them.

- ``workers.py``: a :class:`~scaler_cluster.core.records.workers.Run` is contiguous tasks that share
  function, options, state and place; a worker has runs, in the order in which it runs them; a
  pool is the workers that offer the same.
- ``supervisors.py``, ``functions.py``, ``objects.py``: machines, pickled functions, and large data
  with the machines that store it.
- ``lifecycle.py``: the states of a task, and the table of the moves between them. ``Run.move`` is
  the only way from one state to the next; a move that the table lacks raises, with the run's
  story. The diagram in the documentation is drawn from this table.
- ``credit.py``: how much work a worker is given ahead, from how long tasks were measured to take.
  ``limits.py`` has the two numbers that records begin with.
- ``accounts.py``: how much of the workers' time each client and user has had. Whoever had the least
  is served next.
- ``placement.py``: whether a worker has what a task demands.
- ``totals.py``: how many tasks of each client and function came to what.

All of it is driven by calls from the scheduler; nothing in here sends, waits or keeps a clock.
"""
