"""Test aids that are part of the product: one core on a bench, a whole cluster in one thread.

Theory of operation
-------------------
``bench.py`` drives one scheduler core by hand: a line feeds it messages, and what it answers can be
compared. ``describe.py`` writes messages as people read them.

``simulation.py`` runs a whole cluster from one seed. The cores, the exchanges and the codec are the
shipped ones. So are the two loops in which a worker does several things at once: ``run_work``,
which runs tasks, and the loop of a thread that waits for tasks. Time, the network, files and the
tasks are simulated. The seed decides every delay, loss, repetition, crash and pause; the same seed
repeats everything. The scheduler's invariants are checked every few steps, and after each step when
a seed that failed is played again. Each client checks what comes back: everything once, and the
right value. When the faults end, all that live clients asked for must come back, and nothing may be
left anywhere.

- A simulated process is a ``Node`` (``nodes.py``): an exchange and a timer. It sees the others only
  through the ``World`` (``world.py``), which the simulation implements. ``plan.py`` says what a
  simulation consists of, and draws small parts of large plans. ``network.py`` carries envelopes,
  ``faults.py`` is what goes wrong besides, and ``runner.py`` plays many seeds. ``rogue.py`` is a
  peer that says anything, and ``limits.py`` makes limits of the engine so small that they matter.
- ``machines.py`` has supervisors and workers, ``storages.py`` the object storages, and
  ``memory_files.py`` their files. ``sessions.py`` is whatever asks for tasks: a client
  (``clients.py``), or the tasks of a worker (``nested.py``). ``asked.py`` notes what may come back.
- ``tasks.py`` makes of a payload what a task does, and ``programs.py`` says it act by act.
  ``graphs.py`` draws graphs. ``simulated_tasks.py`` plays the tasks on the stack of a worker.
- ``worker_driver.py`` runs the task loop of a worker up to the next task. Between any two lines of
  the loop (``preemption.py``) the control thread may take messages in.

Two levels of schedulers are studied here, and are not part of the engine: see
``docs/two-levels.md``. ``two_levels.py`` is the simulation of a cluster whose machines have
schedulers of their own. Such a scheduler sees the world through ``local_world.py``. ``foreman.py``
is between it and the centre, and ``foreman_reports.py`` is what it reports. ``wide.py`` has what
the core of a scheduler would need for that. ``race.py`` measures one level against two, with the
processes of ``paced.py``, and ``two_level_cases.py`` plays single promises. ``python -m
scaler_cluster.testing two_levels`` prints the figures; with a first seed and a number it plays
seeds with faults.

``python -m scaler_cluster.testing everything 0 1000`` plays a thousand seeds of a plan, on all
cores; ``all`` in place of ``everything`` plays them of each plan. With one seed alone it prints
every message.
"""
