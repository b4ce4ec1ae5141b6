"""Results that were lost: which nodes run again for that, and which must not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.core.graph.node_states import ASSIGNED, DONE, READY, WAITING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scaler_cluster.core.graph.node_states import NodeStates
    from scaler_cluster.core.graph.topology import Topology


def lose(states: NodeStates, topology: Topology, nodes: Iterable[int]) -> list[int]:
    """What these nodes returned is lost: they run again, after nodes whose results they need.

    Return the nodes that must not run again, as they have at_most_once.
    """
    states.losses += 1
    inputs, all_states = topology.inputs, states.states
    lost: dict[int, None] = {}
    todo = [node for node in nodes if node >= inputs and states.uses[node]]
    while todo:
        node = todo.pop()
        if node in lost:
            continue
        lost[node] = None
        states.forget(node)
        all_states[node] = WAITING
        states.live += 1
        states.open += 1
        for one in topology.dependencies(node):
            states.uses[one] += 1
            is_here = one in states.results or one in states.kept
            if one >= inputs and not states.is_live(one) and not is_here:
                todo.append(one)
    hopeless = []
    for node in sorted(lost):
        for one in topology.dependents[node]:
            if one not in lost and states.is_live(one):
                states.missing[one] += 1
                if all_states[one] == READY:
                    states.unready(one)
                elif all_states[one] == ASSIGNED:
                    states.lost_input[one] = None
        dependencies = topology.dependencies(node)
        sharing = (states.sharing.get(one, ()) for one in dependencies)
        states.missing[node] = sum(all_states[one] != DONE for one in dependencies)
        states.missing[node] += sum(waiting.count(node) for waiting in sharing if waiting)
        states.missing[node] += node in states.stopping
        if not states.missing[node]:
            states.release(node)
        if states.group_of(node).options.at_most_once:
            hopeless.append(node)
    return hopeless
