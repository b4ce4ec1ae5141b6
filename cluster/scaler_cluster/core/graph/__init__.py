"""The graphs of a scheduler, node by node.

Theory of operation
-------------------

A client sends a graph in parts. Nodes are numbered from 0 so that each node comes after the nodes
it depends on; the id of a node's task is that number plus the graph's first task. The first nodes
may be inputs: they are not run, their values come from elsewhere.

A :class:`~scaler_cluster.core.graph.graph.GraphRecord` has four parts:

- ``topology.py``: what the client said. It checks each part when it comes, and never changes it.
- ``node_states.py``: where each node stands (the states of ``core.records.lifecycle``), how many
  dependencies it still lacks, how many nodes still need it, and what it returned for as long as it
  is needed. A node whose last dependency returned becomes ready. A node that is not needed any
  more is cancelled, or its result is dropped.
- ``graph.py``: which worker has which nodes. It cuts contiguous nodes out for a worker, as a
  ``NodeRun``: nodes that wait go along if all that they wait for is done, or before them on the
  same worker. So the worker goes on from node to node without asking. Long nodes that are needed
  together go to one worker.
- ``placer.py``: where nodes run that need large results. A worker *keeps* the large results of its
  nodes, and tells the scheduler only how large they are. Such a node is *bound* to the worker that
  has most of what it needs; what other workers have of that, they are asked to send (*share*), and
  the node waits for it. A worker without work takes over nodes that are bound to busy ones.

The ready nodes of a graph that share their options take one place in the scheduler's queue
(``ready_nodes.py``); which of them run is decided when a worker is found.

The doors are the methods that the scheduler calls: ``add`` when a part comes, ``cut_head`` and
``cut_after`` when a worker has room, ``returned``, ``shared``, ``end`` and ``put_back`` when the
outcome is known, and ``losses.py`` when results are lost: then nodes run again. A graph sends
nothing itself: it sets aside the nodes that ended, the nodes that are to be stopped, the data that
is to be released and what workers are to be told of the results that they keep, and the scheduler
sees to them.

``critical_path.py`` works out the longest paths, for watchers.
"""
