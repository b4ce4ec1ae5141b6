"""Large data: files that every process of a machine maps, and their way to other machines.

Theory of operation
-------------------
A large buffer does not travel inside of messages. It is written to a *segment*: a file in shared
memory, or on disk if there is no room. A segment gets its name only when it is whole, and never
changes after that, so readers wait for no lock. A process that has mapped a segment keeps its
bytes, also if the file is removed. ``segments.py`` writes, maps and removes segments; all processes
of a machine count together how much shared memory they use (``shared_memory.py``). For a moment the
files of those that were removed are kept for the next ones of their size (``recycled.py``).
``storage_dirs.py`` says in which directories they lie. Who writes segments knows of which of them
the scheduler is still to be told (``reported_names.py``).

An *object* is the content that the scheduler knows. The id of what a client stored is the digest of
its bytes (``digest.py``), so equal content is stored once. A large result is known by the name of
its segment.

- Client: ``sent.py`` decides whether a buffer has to be stored. It knows a buffer by owner, address
  and size. If anybody may write to the buffer (``unchanging.py``), it compares a fingerprint of the
  content first. It counts who in this process still needs each object, and tells the scheduler when
  nobody does. ``client_store.py`` then writes a segment, or sends the bytes to a storage of another
  machine (``remote_store.py``, ``source.py``). A ``StoredResult`` stands for a large result until
  the user asks for the value.
- Worker: ``worker_store.py`` maps what tasks need and writes what they return. ``nested_store.py``
  is the client's store of the tasks of a worker, which may run where they were submitted.

Which segments exist, which machines need a copy, and when one is removed, is decided by the
scheduler (``core/scheduler/objects.py``). The storage of each machine carries that out
(``core/storage``, ``runtime/storage.py``). Clients and workers remove no segment that the scheduler
was told of.

Rules: finalizers call ``release`` and ``drop``, which take no lock; the next ``sweep`` does the
work. ``SentObjects`` moves no bytes under its lock.
"""
