"""How workers are started elsewhere: one backend for each system.

Theory of operation
-------------------

A *manager* (``runtime/manager.py``, with its core in ``core/manager``) connects to the scheduler
like any peer, hears how many workers are wanted, and makes it so. What it starts and ends is a
*unit*: a job of Slurm, a pod, a virtual machine, with one supervisor and its workers in it. The
core decides which units are started and ended; a *backend* does it. A backend knows nothing of
tasks and schedulers: it starts units by their names, says which of them there are, and ends them.

``backend.py`` has the interface, ``unit_command.py`` the command that every unit runs, and
``managers.py`` says which backend belongs to which settings. Each other module is one system.

A cluster of Dask or of Ray has units as *guests* (``guest_unit.py``). Its library does as it likes
with the process that it is in. So that is a child of the manager, and ``bridge.py`` has both ends
of what leads there.

A unit's name begins with the id of its manager. A system that can be asked for what runs in it is
asked for those names, or for labels with them: so a manager that was killed finds its units again.

Where a system runs single calls and no workers, there is no unit: a *proxy* (``runtime/proxy.py``)
has workers whose tasks a *runner* (``remote.py``) hands to the system.

Keys reach the workers by the means of each system: a file that nobody else can read, a secret, or
the environment variable SCALER_KEY; never by a command line, which others can read.
"""
