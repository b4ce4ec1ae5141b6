"""Keys: who may speak to whom, where they lie, and which of them an address needs.

Theory of operation
-------------------
Every process that listens at TCP has a pair of keys, and so has every process that connects. In the
handshake (CURVE, in ``links``) both prove that they have the secret of their public key; what they
say after that is encrypted. A process that connects knows the key of whom it wants to reach, so
nobody can take the place of that. A process that listens has a list of the keys that it lets in,
each with a *user*: a role and a name, as ``client:alice``. The role says at which doors a user may
come in, and what it may say there (``core/scheduler/scheduler.py``).

- ``keys.py``: what a file of keys says. Pure.
- ``key_files.py``: reads and writes such files. A file that other users of the machine can read is
  refused. ``scaler_keys`` is the command for them.
- ``credentials.py``: what a process was given, and what it shows at which address. A path of a
  private directory (``ipc://``) needs no keys. A loopback address has those of the user, which are
  made when they are first needed. Any other address needs a file.

Only the scheduler knows who is let in: it reads its file again when that changes, and tells the
object storages. A storage has the keys of the process that started it. It adds its public key to
its address, so whoever is told of the address knows whom to expect there.
"""
