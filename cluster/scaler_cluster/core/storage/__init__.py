"""The object storage of a machine: it removes, serves, takes in and copies segments.

Theory of operation
-------------------

A segment is a file in shared memory with the bytes of an object. Programs on the machine write and
map segments themselves; the storage does what needs somebody who stays. It does not decide which
segments are needed: the scheduler does, and tells it to release, purge or copy.

- ``uploads.py``: a client on another machine wants to store a segment here. The storage asks it
  for the bytes, part by part.
- ``copies.py``: the scheduler wants a copy of a segment that lies on another machine. The storage
  asks that machine's storage for the bytes, a few segments at a time, and reports each end.
- ``transfer.py`` is the state of one transfer at the end that asks; ``intake.py`` writes what
  arrives.

The storage of a scheduler or a supervisor connects to the scheduler. A storage that runs by itself
waits for a scheduler to connect. Both serve any peer that fetches parts of a segment.

The doors are in ``storage.py``: ``receive`` for the scheduler and for peers that connected,
``receive_from`` and ``source_lost`` for other storages, ``peer_lost``, and ``tick`` at the
``deadline``. The shell sends what ``take_actions`` and ``take_requests`` return, and keeps the
connections that ``sources`` names. The bytes themselves go through ``Files``, which the shell
brings: this is the one role whose core calls out, for reads and writes of shared memory.
"""
