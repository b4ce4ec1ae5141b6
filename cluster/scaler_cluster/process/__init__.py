"""Processes: how they start, find each other, and end.

Theory of operation
-------------------

Each process of the engine is a Python interpreter that runs one module, ``python -m
scaler_cluster.runtime.scheduler`` for one. Its parent is a program with an embedded cluster, a
stack, a command, or another process of the engine; other commands run the same code themselves.

*What to do.* The parent makes one frozen record (``process_config.py``) and pickles it into the
child's standard input (``write_config``, ``read_config``). Parent and child run the same code as
the same user, so there is no format to agree on, and nobody else can write there. The record is
whole: a child never asks for more, and has no defaults of its own.

*Ready, or not.* A child that others wait for inherits a pipe. It writes one line of JSON there:
its addresses, or the sentence that says why it cannot work (``say_ready``,
``ChildProcess.await_ready``). Some addresses are known only by then, as port 0 means any free port.

*The end.* Standard input stays open after the record, and is the child's *lifeline*: it comes to
its end when the parent closes it or dies, however it dies. A child that reads the end of it stops
in order. A command has no parent, so a signal closes its lifeline (``lifeline_of_signals``). The
workers go further: the kernel kills them with the fork server (``die_with_parent``).

*Killed, and started again.* A program with an embedded cluster (``embedded_cluster.py``) looks
after its scheduler and its supervisor in a thread (``keeper.py``): it starts what was killed again,
at the same addresses. ``scaler_scheduler`` and ``scaler`` do so with their scheduler
(``kept_scheduler.py``). What ended by itself, or is killed again and again, stays dead.

*What they leave.* The sockets and the objects of a cluster are files, in directories of its own
(``directories.py``). Every process that needs them holds a lock there, and the last one to end
removes them. If all were killed, the next cluster on the machine finds the directories unlocked,
and removes them.

Besides that, this package has what a process needs that talks to others while user code runs in
it: Ctrl-C that waits for the end of an exchange (``interrupts.py``), a wait for sockets that
another thread can switch off (``readiness.py``), log records on their way (``log_records.py``), and
the link by which browsers find a dashboard. ``inheritance.py`` hands the locks and queues of a
program to its workers.
"""
