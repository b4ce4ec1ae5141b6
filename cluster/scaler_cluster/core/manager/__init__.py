"""What a manager decides: which units are started, drained and ended.

Theory of operation
-------------------

The scheduler tells a manager how many workers are wanted (``Wanted``), again with each heartbeat,
as an absolute number: one that is lost does no harm. It also names the units whose workers are
here, with how many tasks each has. The manager's backend (``provision/backend.py``) says which
units its system has. ``ManagerCore`` compares: it has units started if there are too few, within
the most that there may be, those on their way out counted; and it lets those go that are too many,
first those whose workers have not come, then those with the fewest tasks.

A unit whose workers are here is never simply ended: the manager asks the scheduler to ``Drain`` it.
Its workers finish what they run, its supervisor is sent off, and the unit ends by itself. Only what
has not ended by then, or never came, is ended through the backend.

A unit is here once one of its workers was. One that ends before that, or soon after, was in vain,
and so is one whose workers cannot start: the scheduler, which hears why, says so (``UnitBroken``).
After that the manager waits before it tries again, twice as long each time: five minutes at most if
none comes, and 16 seconds if they come and die; one that comes and lives for a while ends that.

The core has no clock and calls no backend: ``runtime/manager.py`` does both.
"""
