"""What an operator may do to what a page shows: a button for each, if the tab may act."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from scaler_cluster.ids import session_label
from scaler_cluster.wire import messages as m
from scaler_monitoring import texts, view
from scaler_monitoring.dashboard.parts import show, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.wire import feed
    from scaler_monitoring.dashboard.tab_view import View
    from scaler_monitoring.model import Model

ABOUT = {
    m.CANCEL: "Their client is told, as if it had cancelled them itself.",
    m.PAUSE: "What is paused gets nothing more, and finishes what it runs.",
    m.RESUME: "What was paused gets tasks again.",
    m.DRAIN: "It finishes what it runs, and leaves for good.",
    m.RESTART: "It finishes what it runs; then a new process takes its place.",
}
FORCED = "It is killed at once: what it runs begins anew, or fails if it is to run at most once."


@dataclass(frozen=True)
class Deed:
    """Something to be done, as an operator names it, and in words."""

    action: str
    kind: str
    name: str
    """By which the scheduler finds what is meant."""
    shown: str
    """What the page calls that."""
    word: str
    """What the button says."""
    is_forced: bool = False

    @property
    def html(self) -> str:
        """Return a button; the script of the page does the rest."""
        said = {
            "action": self.action,
            "kind": self.kind,
            "name": self.name,
            "force": "true" if self.is_forced else "false",
            "title": f"{self.kind.capitalize()} {self.shown}: {self.word.lower()}?",
            "about": FORCED if self.is_forced else ABOUT[self.action],
            "yes": f"Yes, {self.word.lower()}",
        }
        data = "".join(f' data-{key}="{escape(value)}"' for key, value in said.items())
        return f'<button type="button" class="deed"{data}>{escape(self.word)}</button>'


class Deeds:
    """Buttons, in an element of their own: pages change often, and a button keeps the focus."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.root = text("", view.theme, _CSS)

    def update(self, deeds: Sequence[Deed], said: str = "") -> None:
        """Show these, and before them what is said; nothing if the tab may not act.

        In what was, nobody can.
        """
        parts = [f"<span>{escape(said)}</span>"] if said else []
        parts += [one.html for one in deeds]
        may_act = self._view.may_act and self._view.watch.is_live
        show(self.root, f"<p>{''.join(parts)}</p>" if parts and may_act else "")


class RowDeeds(Deeds):
    """Buttons for the row that is chosen in a table, which has no page of its own."""

    def __init__(self, view: View, what: str) -> None:
        super().__init__(view)
        self.key = "key" if view.may_act else ""
        """The field by which the table is to know its rows: only who may act chooses one."""
        self._what = what

    def show(self, deeds: Sequence[Deed]) -> None:
        """Show these, and of what they are; without any, that a row can be chosen."""
        said = f"{deeds[0].kind.capitalize()} {deeds[0].shown}:" if deeds else ""
        self.update(deeds, said or f"Choose a {self._what} to act on it.")


def of_task(model: Model, name: str) -> list[Deed]:
    """Return what can be done to a task, by what pages call it."""
    number = view.task_number(name)
    if number is None or _are_alike(model, number[0]):
        return []
    return [Deed(m.CANCEL, m.TASK, f"{number[0]}:{number[1]}", name, "Cancel")]


def of_function(name: str) -> list[Deed]:
    """Return what can be done to all tasks of a function."""
    if not name:
        return []
    return [Deed(m.CANCEL, m.FUNCTION, name, view.function_name(name), "Cancel all its tasks")]


def of_graph(model: Model, graph: feed.Graph) -> list[Deed]:
    """Return what can be done to a graph."""
    name = f"{_client(model, graph.session)}:{graph.first}"
    return [Deed(m.CANCEL, m.GRAPH, name, texts.short(graph.name) or view.NO_NAME, "Cancel")]


def of_client(model: Model, client: feed.Client) -> list[Deed]:
    """Return what can be done to the work of a client."""
    name = _client(model, client.session)
    return [Deed(m.CANCEL, m.SESSION, name, texts.client_name(client), "Cancel all its work")]


def of_worker(model: Model, worker: feed.Worker) -> list[Deed]:
    """Return what can be done to a worker; by its name, if it alone has that."""
    assert model.snapshot is not None
    is_alone = sum(one.name == worker.name for one in model.snapshot.workers) == 1
    name = worker.name if worker.name and is_alone else worker.worker.hex()
    shown = model.label(worker.worker)
    pause = (m.RESUME, "Resume") if worker.is_paused else (m.PAUSE, "Pause")
    return [
        *(Deed(action, m.WORKER, name, shown, word) for action, word in (pause, *_LEAVING)),
        Deed(m.RESTART, m.WORKER, name, shown, "Restart by force", is_forced=True),
    ]


def of_machine(model: Model, machine: feed.Machine) -> list[Deed]:
    """Return what can be done to a machine; by its host, if it is the only one there."""
    assert model.snapshot is not None
    machines = model.snapshot.machines
    is_alone = Counter(one.host for one in machines)[machine.host] == 1
    name = machine.host if machine.host and is_alone else machine.machine.hex()
    shown = view.manager_names(machines).get(machine.machine, name)
    pausing = (m.PAUSE, "Pause"), (m.RESUME, "Resume")
    return [Deed(action, m.MACHINE, name, shown, word) for action, word in (*pausing, *_LEAVING)]


_LEAVING = (m.DRAIN, "Drain"), (m.RESTART, "Restart")


def _client(model: Model, session: int) -> str:
    """Return the number of a client, the whole one if another client is called the same."""
    label = session_label(session)
    return str(session if _are_alike(model, label) else label)


def _are_alike(model: Model, label: int) -> bool:
    """Return True if several clients are called so: those of two schedulers may be."""
    assert model.snapshot is not None
    return sum(session_label(one.session) == label for one in model.snapshot.clients) > 1


_CSS = """
    p { display: flex; flex-wrap: wrap; gap: .5rem; align-items: center; margin: .2rem 0 .6rem; }
    button { font: inherit; color: var(--text); background: var(--panel); cursor: pointer;
        border: 1px solid var(--muted); border-radius: 6px; min-height: 34px;
        padding: .2rem .7rem; }
    button:hover { border-color: var(--accent); }
    button:focus-visible { outline: 3px solid var(--accent); outline-offset: -1px; }
"""
