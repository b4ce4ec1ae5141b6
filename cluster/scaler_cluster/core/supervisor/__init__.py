"""The supervisor of a machine: it keeps the workers alive, and tells the scheduler how they died.

Theory of operation
-------------------

A supervisor has a slot for each worker that the machine is to run, and as many slots for spare
workers, which take the place of workers whose task only waits. It decides when a worker is started
in a vacant slot: at once, or after a pause that doubles while workers die before they are ready.
If several in a row do, or an initializer fails, no worker can start: it says so and starts no more.

It decides which worker is killed: one that the scheduler names, and one whose memory exceeds the
limit. It reports a task that ran longer than the limit of this machine.

The doors are in ``supervisor.py``: ``receive`` takes what the scheduler sent, ``heard`` that it
lives; ``spawned``, ``sampled``, ``seen`` and ``died`` take what the operating system and the shared
memory tell of workers; ``tick`` is due at the ``deadline``. ``take_actions`` returns what the shell
in ``runtime/machine.py`` is to do, in order: send a message, start or kill the worker of a slot,
end the supervisor with its workers, or start over as a machine that the scheduler does not know.
"""
