"""The simulation does to its cluster what a plan says."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from scaler_cluster.core.delivery import channel
from scaler_cluster.testing.faults import Faults
from scaler_cluster.testing.limits import LIMITS, limited
from scaler_cluster.testing.network import ANYBODY
from scaler_cluster.testing.nodes import Node, SchedulerNode
from scaler_cluster.testing.plan import PLANS, Plan, drawn
from scaler_cluster.testing.simulation import Simulation
from scaler_cluster.wire.codec import encode

if TYPE_CHECKING:
    from scaler_cluster.testing.world import World
    from scaler_cluster.wire.batch import Buffer

CALM = Plan(
    machines=1, workers=1, clients=1, tasks=1, drop=0, duplicate=0, worker_crashes=0,
    machine_crashes=0, pauses=0,
)  # fmt: skip


class Listener(Node):
    """Notes what arrives."""

    def __init__(self, simulation: World, name: bytes, host: bytes = b"") -> None:
        super().__init__(simulation, name, host)
        self.heard: list[tuple[float, bytes]] = []

    def receive(self, source: bytes, frames: list[Buffer]) -> None:
        self.heard.append((self.simulation.now, b"".join(map(bytes, frames))))

    @property
    def words(self) -> list[bytes]:
        return [word for _, word in self.heard]


def three(plan: Plan = CALM) -> tuple[Simulation, Listener, Listener, Listener]:
    """Return a simulation with two nodes on one host, and one on another."""
    simulation = Simulation(1, plan)
    one = Listener(simulation, b"one", b"here")
    return (
        simulation,
        one,
        Listener(simulation, b"beside", b"here"),
        Listener(simulation, b"other", b"there"),
    )


@pytest.mark.parametrize(("source", "target"), [("one", "other"), ("here", "there"), ("one", "")])
def test_a_cut_link_loses_what_is_sent_one_way(source: str, target: str) -> None:
    """Nothing gets through a cut link until it is whole; the other direction is whole."""
    simulation, one, _, other = three()
    network = simulation.network
    network.cut(source.encode(), target.encode() or ANYBODY, 2.0)
    network.carry(b"one", b"other", [b"lost"])
    network.carry(b"other", b"one", [b"back"])
    simulation._run_for(2.0)
    network.carry(b"one", b"other", [b"late"])
    simulation._run_for(1.0)

    assert one.words == [b"back"]
    assert other.words == [b"late"]


def test_a_host_that_is_cut_off_talks_within() -> None:
    """Processes of one machine hear each other while nobody else hears them."""
    simulation, _, beside, other = three()
    simulation.network.cut(b"here", ANYBODY, 2.0)
    simulation.network.carry(b"one", b"beside", [b"within"])
    simulation.network.carry(b"one", b"other", [b"out"])
    simulation._run_for(1.0)

    assert beside.words == [b"within"]
    assert other.words == []


def test_a_new_connection_overtakes_the_old_one() -> None:
    """What was sent before a link was connected anew arrives in order, after what was sent later."""
    simulation, _, _, other = three()
    network = simulation.network
    network.connect_anew(b"here", b"there", 0.5, 3.0)
    network.carry(b"one", b"other", [b"old"])
    network.carry(b"one", b"other", [b"older"])
    simulation._run_for(0.6)
    network.carry(b"one", b"other", [b"new"])
    simulation._run_for(4.0)

    assert other.words == [b"new", b"old", b"older"]


def test_a_slow_link_delays_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that carries 1,000 bytes a second takes three seconds for 3,000, in order."""
    monkeypatch.setattr("scaler_cluster.testing.network.RATES", (1000.0,))
    simulation, one, _, other = three(replace(CALM, slow=1.0))
    simulation.network.carry(b"one", b"other", [bytes(2000)])
    simulation.network.carry(b"one", b"other", [bytes(1000)])
    simulation._run_for(5.0)

    assert [round(moment) for moment, _ in other.heard] == [2, 3]
    assert one.heard == []


def test_limits_are_small_inside_and_as_before_outside() -> None:
    """Limits that a plan names are in force while it is played, and are put back if it fails."""
    before = channel.EARLY_MAX, channel.ACKNOWLEDGE_EVERY
    prefix = "scaler_cluster.core.delivery.channel:"
    some = [(f"{prefix}EARLY_MAX", 2), (f"{prefix}ACKNOWLEDGE_EVERY", 3)]
    with pytest.raises(ValueError, match="broken"), limited(some):
        assert (channel.EARLY_MAX, channel.ACKNOWLEDGE_EVERY) == (2, 3)
        raise ValueError("broken")

    assert (channel.EARLY_MAX, channel.ACKNOWLEDGE_EVERY) == before


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_becomes_another(name: str) -> None:
    """Each limit exists, and no value that a seed may draw is the engine's own."""
    module, _, constant = name.partition(":")

    assert getattr(import_module(module), constant) not in LIMITS[name]


def test_limits_differ_by_seed() -> None:
    """Seeds draw different limits, and a plan without them has none."""
    some = {drawn(PLANS["tiny limits"], seed).limits for seed in range(20)}

    assert len(some) == 20
    assert not any(drawn(PLANS["tasks"], seed).limits for seed in range(20))


@pytest.mark.slow
def test_each_fault_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans cut links, let connections overtake, stop processes, and rogues are dropped."""
    seen: dict[str, int] = {}
    for owner, names in ((Faults, ("_cut", "_overtake", "_stop")), (SchedulerNode, ("_drop",))):
        for name in names:
            _count_calls(monkeypatch, owner, name, seen)
    plan = Plan(
        machines=2, tasks=20, partitions=1, overtakings=1, stops=1, rogues=2, task_limit=2,
        has_changing_machines=True, faults_s=3.0,
    )  # fmt: skip
    lines: list[str] = []
    for seed in range(3):
        Simulation(seed, plan, lines.append).run()

    assert seen.keys() == {"_cut", "_overtake", "_stop", "_drop"}
    assert any("Retire" in line for line in lines)
    assert any(" LOST " in line for line in lines)
    assert any("(('even', 1),)" in line for line in lines)


def _count_calls(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, seen: dict[str, int]
) -> None:
    real = getattr(owner, name)

    def counted(self: object, *arguments: object) -> object:
        seen[name] = seen.get(name, 0) + 1
        return real(self, *arguments)

    monkeypatch.setattr(owner, name, counted)


def test_the_log_tells_what_was_lost() -> None:
    """A line of the log says which envelope does not arrive."""
    lines: list[str] = []
    simulation = Simulation(1, CALM, lines.append)
    simulation.network.cut(b"C", b"D", 1.0)
    simulation.network.carry(b"C", b"D", encode(1, 1, 0, ()))

    assert lines[-1] == "0.000000 LOST C to D: "
