"""The client's side of the protocol: what a client asked for, and what came back.

Theory of operation
-------------------
The core knows each task that has not come back: single tasks and nodes of graphs by their *waiter*,
an object that it never looks into (a future), and maps by their ``MapSink``, which takes results by
index. It numbers tasks, and decides what the scheduler is told, and when.

- ``client.py`` has the doors. ``submit``, ``open_call``, ``submit_graph`` and ``cancel`` say what
  the user wants. ``receive`` takes what the scheduler sent. ``take_actions`` returns the messages
  to send, ``take_events`` what happened (``events.py``): the shell handles these.
- ``requests.py`` is the outbox. It joins single tasks that were submitted one after the other into
  one ``Submit``, if they share function, options and objects. It sends each function once, before
  the first task that names it, and forgets the one that was used least recently.
- ``submit_window.py`` holds tasks back, in order, if the scheduler limits how many may wait there:
  the client asks for credit, and sends as much as it is granted.
- ``unfinished.py`` and ``unfinished_graphs.py`` keep what was sent until it comes back. If
  the scheduler does not know the client any more, the shell calls ``start_over``: the core says
  Hello anew, and when the scheduler has answered, it asks again. Tasks that may not run twice fail
  then, and so do graphs with such a node.
- ``held_objects.py`` knows what the client has stored. It lets go of an object only when no
  unfinished task needs it, and names all of it to a scheduler that takes over the storages.
- ``coordination.py`` has what was asked of locks, queues and the like, and what the scheduler keeps
  for this client: that is said again as well.
- ``liveness.py`` says when a heartbeat is due, and when a silent scheduler is given up.

Each task comes back once: an answer for a task that is not pending any more is dropped, and objects
that came with it are released. The core is driven by ``client/connection.py``, under its lock. The
session of a worker's tasks has a core that knows more (``core/worker/nested.py``).
"""
