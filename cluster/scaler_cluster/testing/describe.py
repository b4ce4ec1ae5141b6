"""Messages in one short line each, for expectations in tests and for logs of the simulation.

A task reads ``session:task`` between scheduler and worker, and ``task`` alone between scheduler
and client; contiguous tasks read ``first-last``.
"""

from __future__ import annotations

from string import ascii_letters
from typing import TYPE_CHECKING, Any

from scaler_cluster.ids import function_id
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scaler_cluster.wire.batch import Batch, Buffer

_FUNCTIONS = {function_id(letter.encode()): letter for letter in ascii_letters}
"""Functions of one letter, by their digest."""


def describe(message: m.Message) -> str:
    """Return the message as one line."""
    return _TELLERS[type(message)](message)


def describe_all(actions: Mapping[bytes, Sequence[m.Message]]) -> dict[str, list[str]]:
    """Return an outbox as lines by the name of the peer."""
    return {name(peer): [describe(one) for one in sent] for peer, sent in actions.items()}


def name(identifier: Buffer) -> str:
    """Return an id of bytes as text: itself if it is readable, its start if it repeats a letter.

    Functions of one letter read as that.
    """
    identifier = bytes(identifier)
    if identifier in _FUNCTIONS:
        return _FUNCTIONS[identifier]
    if len(identifier) == 16 and len(set(identifier)) == 1:
        identifier = identifier[:1]
    if identifier.isascii() and (text := identifier.decode()).isprintable():
        return text
    return identifier.hex()


def tasks(first: int, count: int, session: int | None = None) -> str:
    """Return contiguous tasks as text."""
    text = str(first) if count == 1 else f"{first}-{first + count - 1}"
    return text if session is None else f"{session}:{text}"


def _payloads(batch: Batch) -> str:
    return f"[{' '.join(name(payload) for payload in batch)}]"


def _units(wanted: m.Wanted) -> str:
    pairs = zip(wanted.units, wanted.tasks, strict=True)
    told = ", ".join(f"{unit} has {tasks}" for unit, tasks in pairs)
    return f": {told}" if told else ""


def _with(objects: tuple[bytes, ...]) -> str:
    return f" with {_names(objects)}" if objects else ""


def _names(objects: tuple[bytes, ...]) -> str:
    return " ".join(map(name, objects))


def _submit(x: m.Submit) -> str:
    options = "" if x.options == m.DEFAULT_OPTIONS else f" {x.options}"
    what = f"{name(x.function)}{options}{_with(x.objects)}"
    return f"Submit {tasks(x.first, len(x.batch))} {what}"


def _having(portion: m.Portion | None) -> str:
    if portion is None:
        return ""
    parts = [f"{name}={amount:g}" for name, amount in portion.uses]
    if portion.devices:
        parts.append(f"devices {','.join(map(str, portion.devices))}")
    if portion.is_whole or portion.cores > 1:
        parts.append(f"{portion.cores} cores" + " of all" * portion.is_whole)
    return f" having {' '.join(parts)}" if parts else ""


def _assign(x: m.Assign) -> str:
    extra = " reporting start" * x.report_start + " streaming" * x.stream_output
    extra += " logging" * (x.log_level > 0) + " profiling" * x.profiling
    extra += f" at depth {x.depth}" if x.depth else ""
    extra += " once" * x.at_most_once + _having(x.portion)
    what = f"{name(x.function)}{extra}{_with(x.objects)}"
    return f"Assign {tasks(x.first, len(x.batch), x.session)} {what}"


def _assign_nodes(x: m.AssignNodes) -> str:
    extra = " reporting start" * x.report_start + " streaming" * x.stream_output
    extra += " logging" * (x.log_level > 0) + " profiling" * x.profiling
    extra += _having(x.portion)
    given = zip(numbers(x.inputs), x.results, strict=False)
    inputs = "".join(f" {node}={name(result)}" for node, result in given)
    what = f"{name(x.function)}{extra}{_with(x.objects + x.segments)}{inputs}"
    return f"AssignNodes {tasks(x.first, len(x.batch), x.session)} {what}"


def _hello(x: m.Hello) -> str:
    extra = f" of {name(x.supervisor)}" if x.supervisor else ""
    extra += f" for {x.task_limit} tasks" if x.task_limit else ""
    extra += f" again, {x.resume}" if x.resume else ""
    return f"Hello {x.role}{extra}"


def _range(x: Any) -> str:
    return f"{type(x).__name__} {tasks(x.first, x.count, getattr(x, 'session', None))}"


def _holding(x: m.Holding) -> str:
    extra = f", {x.started} started" if x.started else ""
    extra += f" {x.running_s:.3g} s ago" if x.running_s else ""
    return _range(x) + extra + _having(x.portion)


def _held(x: m.Held) -> str:
    ledger = list(numbers(x.started, "Q"))
    runs = zip(ledger[::3], ledger[1::3], ledger[2::3], strict=True)
    started = "".join(f" {tasks(first, count, session)}" for session, first, count in runs)
    return f"Held, started{started or ' nothing'}" + " and more" * (not x.is_whole)


def _reason(x: Any) -> str:
    return f"{type(x).__name__}: {x.reason}" if x.reason else type(x).__name__


_TELLERS: dict[type[m.Message], Callable[[Any], str]] = {
    m.Hello: _hello,
    m.Welcome: lambda x: f"Welcome {x.session}, {x.workers} workers" + ", ask first" * x.asks_first,
    m.Refused: _reason,
    m.Heartbeat: lambda x: "Heartbeat",
    m.Gap: lambda x: f"Gap before {x.start}, seen {x.seen}",
    m.Goodbye: _reason,
    m.Unknown: lambda x: "Unknown",
    m.Function: lambda x: f"Function {name(x.function)}{_with(x.objects)}",
    m.Forget: lambda x: f"Forget {name(x.function)}",
    m.Submit: _submit,
    m.Cancel: lambda x: _range(x) + " queued only" * x.queued_only,
    m.Results: lambda x: f"Results {tasks(x.first, len(x.batch))} {_payloads(x.batch)}",
    m.Failed: lambda x: f"Failed {x.task} {x.kind}",
    m.FailedRange: lambda x: f"{_range(x)} {x.kind}",
    m.Output: lambda x: f"Output {x.task} {x.stream} {x.text!r}",
    m.Broken: _reason,
    m.Cancelled: _range,
    m.Resumed: lambda x: "Resumed",
    m.Holding: _holding,
    m.Held: _held,
    m.Roll: lambda x: f"Roll {_names(x.workers)}" + " and dead ones" * (not x.is_whole),
    m.Unplaced: _reason,
    m.Returned: lambda x: f"Returned {x.task}{_with(x.objects)}",
    m.Assign: _assign,
    m.AssignNodes: _assign_nodes,
    m.DoneNodes: lambda x: (
        f"DoneNodes {tasks(x.first, len(x.batch), x.session)} {_payloads(x.batch)} "
        f"kept {numbers(x.sizes, 'Q')}"
    ),
    m.DropResults: lambda x: f"DropResults {x.session}:{x.graph} {numbers(x.nodes)}",
    m.Share: lambda x: f"Share {x.session}:{x.graph} {numbers(x.nodes)}",
    m.Shared: lambda x: f"Shared {tasks(x.task, 1, x.session)} {x.kind}{_with(x.objects)}",
    m.GraphOver: lambda x: f"GraphOver {x.session}:{x.graph}",
    m.Skipped: lambda x: f"Skipped {tasks(x.task, 1, x.session)}",
    m.Graph: lambda x: f"Graph {tasks(x.first + x.start, len(x.batch))} {name(x.function)}",
    m.RequestInputs: lambda x: f"RequestInputs {x.graph}: {numbers(x.inputs)}",
    m.ProvideInputs: lambda x: f"ProvideInputs {x.task} {x.kind}{_with(x.objects)}",
    m.Revoke: _range,
    m.Revoked: lambda x: f"{_range(x)} kept {x.kept}",
    m.Abort: _range,
    m.Aborted: _range,
    m.Started: lambda x: f"Started {tasks(x.task, 1, x.session)}",
    m.Done: lambda x: f"Done {tasks(x.first, len(x.batch), x.session)} {_payloads(x.batch)}",
    m.Erred: lambda x: f"Erred {tasks(x.task, 1, x.session)} {x.kind}",
    m.Printed: lambda x: f"Printed {tasks(x.task, 1, x.session)} {x.stream} {x.text!r}",
    m.Profile: lambda x: f"Profile {tasks(x.task, 1, x.session)} {x.duration_s:g} s",
    m.Inlined: lambda x: (
        (
            f"Inlined {x.name}: {x.done} done, {x.failed} failed, {x.cancelled} cancelled, "
            f"{x.recalled} recalled, {x.again} again"
        )
        + (", no more" if x.is_last else "")
    ),
    m.Blocked: lambda x: "Blocked" if x.is_blocked else "Blocked no more",
    m.Coordinate: lambda x: f"{x.act} {x.number} {x.kind} {' '.join(x.names)}",
    m.Coordinated: lambda x: f"coordinated {x.number}" + f": {x.refused}" * bool(x.refused),
    m.Withdraw: lambda x: f"withdraw {x.number}",
    m.Lapsed: lambda x: f"lapsed {x.number}",
    m.Offer: lambda x: f"Offer {x.least}-{x.most} by {x.kind}",
    m.Units: lambda x: f"Units {x.coming} coming, {x.ending} ending, {x.failed} failed",
    m.Wanted: lambda x: f"Wanted {x.workers}{_units(x)}",
    m.UnitBroken: lambda x: f"UnitBroken {x.unit}: {x.reason}",
    m.Drain: lambda x: f"Drain {' '.join(x.units)}",
    m.Spares: lambda x: f"Spares {x.count}",
    m.Hosts: lambda x: f"Hosts {x.actor} of {x.owner}{_having(x.portion)}",
    m.EndActor: lambda x: f"EndActor {x.actor}",
    m.Retire: lambda x: "Retire",
    m.Stored: lambda x: f"Stored {tasks(x.task, 1, x.session)}{_with(x.objects)}",
    m.Object: lambda x: (
        f"Object {name(x.object)} in {name(x.segment)}"
        + (f" instead of {name(x.instead_of)}" if x.instead_of else "")
    ),
    m.Keep: lambda x: f"Keep {_names(x.objects)} in {_names(x.segments)}",
    m.Release: lambda x: f"Release {_names(x.objects)}",
    m.Inventory: lambda x: f"Inventory {_names(x.objects)}",
    m.LetIn: lambda x: f"LetIn {len(x.users)}",
    m.Purge: lambda x: f"Purge {name(x.prefix)} but {_names(x.keep)}",
    m.Copy: lambda x: f"Copy {name(x.segment)} from {x.address}",
    m.Arrived: lambda x: f"Arrived {_names(x.objects)}",
    m.Missing: lambda x: f"Missing {_names(x.objects)}: {x.reason}",
    m.Put: lambda x: f"Put {name(x.segment)}",
    m.Fetch: lambda x: f"Fetch {name(x.segment)} {x.offset}+{x.nbytes}",
    m.Part: lambda x: f"Part {name(x.segment)} {x.offset}+{len(x.data)} of {x.total}",
    m.Transferred: lambda x: f"Transferred {name(x.segment)}" + f": {x.error}" * bool(x.error),
    m.WorkerLost: lambda x: f"WorkerLost {name(x.worker)} {tasks(x.task, 1, x.session)}",
    m.Operate: lambda x: (
        f"Operate {x.number} {x.action} {x.kind} {x.name}"
        + " by force" * x.is_forced
        + " on trial" * x.is_trial
    ),
    m.Operated: lambda x: f"Operated {x.number} {x.count}: {x.refused or x.met}",
    m.Notice: lambda x: f"Notice {x.text}",
    m.Shutdown: lambda x: "Shutdown",
    m.TailLogs: lambda x: (
        f"TailLogs for {x.for_s:g} s, {x.lines} lines" + ", the first" * x.is_first
    ),
    m.LogLines: lambda x: f"LogLines {len(x.texts)}" + f", {x.dropped} dropped" * (x.dropped > 0),
    m.Sample: lambda x: f"Sample {x.number}",
    m.Sampled: lambda x: f"Sampled {x.number} of {len(x.functions)}",
    m.ListWorkers: lambda x: f"ListWorkers {x.number}",
    m.WorkerList: lambda x: f"WorkerList {x.number} with {len(x.aliases)}",
    m.RequestCredit: lambda x: f"RequestCredit {x.more - x.fewer}",
    m.GrantCredit: lambda x: f"GrantCredit {x.count}",
    m.Overdue: lambda x: f"Overdue {tasks(x.task, 1, x.session)} on {name(x.worker)}",
    m.Stuck: lambda x: f"Stuck {name(x.worker)}: {x.how} for {x.for_s:g} s",
    m.Kill: lambda x: f"Kill {name(x.worker)}: {x.reason}",
    m.Examine: lambda x: "Examine",
    m.Vitals: lambda x: f"Vitals with {_names(x.workers)}",
    m.InitializerFailed: lambda x: f"InitializerFailed: {x.text}",
}
