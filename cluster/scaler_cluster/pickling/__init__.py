"""Values to bytes and back, and the reasons why a value cannot be pickled.

Theory of operation
-------------------
Clients and workers pickle; the scheduler never does. ``payload.py`` has the doors: ``dumps`` and
``loads``, ``dumps_call`` for a call and ``dumps_result`` for a result. A value is pickled by C's
pickle first. If that cannot pickle it, or would name something of ``__main__``, which is another
module in a worker, cloudpickle does it (``by_value.py``). If a ``Collector`` is passed, large
buffers go there and not into the pickle: ``objects`` stores them.

- ``by_value.py``: functions and classes of ``__main__``, and what cloudpickle alone gets wrong
  about them.
- ``function_cache.py``: what was made of a function stays valid while nothing that the function
  uses has changed. To see that is ten times as fast as to pickle the function again.
- ``nodes.py``: the payload of a graph's node, and how a worker makes a call of it.
- ``named.py``: calls of functions by their names, which other languages can read: no pickles.
- ``exceptions.py``: an exception comes back as the same exception, with its remote traceback; no
  ``__init__`` is called to make it anew.
- ``reloads.py``: modules that the user reloaded are reloaded in the workers as well.
- ``unpicklable.py`` runs only after pickling has failed. It walks the value as the pickler does and
  names the part at fault, as Python would write it: ``model.layers[3].lock``.

Failures are PayloadError, whatever the user's own methods raised. INTERRUPTS, such as Ctrl-C, pass
through.
"""
