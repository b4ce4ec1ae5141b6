"""The worker: what it runs, what it gives back or drops, and what its tasks submit.

Theory of operation
-------------------
A worker runs one task at a time, in its main thread. The scheduler sends it contiguous tasks of
one function, which are a *work* here (``work.py``): the messages, a *cursor* on the task that runs,
and a *stop* after the last task to run. Works wait in the queue of ``WorkerCore`` (``worker.py``).
The core also takes in what the scheduler asks back (*revoke*) or wants dropped (*abort*).

``run_work`` in ``task_loop.py`` is the loop that runs the tasks of a work. It has no clock and no
lock of its own and runs no task itself: it asks its *host* for all that. In a worker process the
host is the shell, and the loop is an ordinary loop. In a simulation a task takes simulated time:
there the loop yields while a task runs. So the simulation runs the code that is shipped.

Two threads use the core. The main thread is in the loop, and takes the lock only at the beginning
and the end of a work and where a task does not simply return. The control thread takes messages in
and reports results while a task runs. What keeps them from stepping on each other is an order:

- The loop writes the cursor, and only then reads the stop. The core writes the stop, and only then
  reads the cursor (``Work.shrink``). A task on which the cursor stands is *claimed*: it is run and
  reported here. A task can be given back only as long as it is not claimed.
- The loop writes when a task ended, and only then appends its result. So whoever reports results
  has the time that they took.
- Results are reported as contiguous tasks from where the last report ended. Whatever is no plain
  result is reported by itself, under the lock; then the loop says ``begin`` for the task after it.

``reports.py`` keeps the results and makes the messages. ``slot.py`` names the words of memory in
which the loop notes what it runs: the supervisor reads them when the worker has died.

What nodes of graphs return stays here (``kept_results.py``): the values themselves, or pickles of
them if each node that takes one is to have its own copy. A large value is sent only when the
scheduler asks for it. The shell does that between two tasks, and the control thread while a task
runs.

A worker that an actor lives in is told so (``Hosts``). Nothing that it runs is interrupted, and it
says so to a scheduler that does not know it.

A task may submit tasks itself. ``NestedCore`` (``nested.py``) is a client's core that first *holds*
what is submitted: if the task waits for it soon, the worker runs it on the stack of that task.
``held_tasks.py`` and ``subtasks.py`` say what is held here and what was sent to the scheduler,
``graph_inputs.py`` who tells the scheduler of the inputs of graphs, and ``waiting.py`` is the loop
of a thread that waits.
"""
