"""What a client has asked for and not got back, so that it can ask a scheduler that forgot it.

The scheduler may have been started anew, or have given this client up while nothing got through.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import TYPE_CHECKING

from scaler_cluster.core.client.held_objects import HeldObjects
from scaler_cluster.core.client.submit_window import part_of
from scaler_cluster.core.client.unfinished_graphs import UnfinishedGraphs, lost
from scaler_cluster.ids import CALL_BITS, ranges_of, segment_number
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Sequence

DEAD_MIN = 64
"""A call's list is rid of runs that came back when there are so many, and half of all, at least."""
GONE = (m.Keep, m.ProvideInputs, m.Heartbeat, m.Coordinate, m.Withdraw)
"""Nothing of this means anything to a scheduler that forgot the client, or all is said anew."""


class Run:
    """A Submit that was sent, and what of it came back."""

    __slots__ = ("came", "function", "left", "needs", "stop", "submit")

    def __init__(self, submit: m.Submit, function: m.Function) -> None:
        self.submit = submit
        self.function = function
        self.needs = submit.objects + function.objects
        """Objects without which it cannot run."""
        self.left = len(submit.batch)
        """How many of its tasks have not come back."""
        self.stop = submit.first + self.left
        self.came: list[range] | None = None
        """Tasks of a map that came back, while others have not; None: none."""


class Unfinished:
    """Keeps what was sent until it comes back. Single tasks are one call, each map is one.

    ``waiters`` knows which single tasks have not come back.
    """

    def __init__(self, waiters: Collection[int]) -> None:
        self._waiters = waiters
        self._functions: dict[bytes, m.Function] = {}
        """What the scheduler knows."""
        self._plain: list[tuple[m.Submit, m.Function]] = []
        """Single tasks that need no objects; some may have come back. What each of them costs is
        paid in a round trip of a lone task."""
        self._plain_left = 0
        """How many tasks these were when they were last looked through."""
        self._plain_came = 0
        """How many single tasks have come back since."""
        self._calls: dict[int, _Call] = {}
        """The others."""
        self.objects = HeldObjects()
        self.graphs = UnfinishedGraphs(self.objects)
        self._taken_back: m.Cancel | None = None
        """What asked for everything back that no worker has; None: nothing did."""

    @property
    def is_empty(self) -> bool:
        """Return True if everything has come back."""
        self._forget_plain()
        return not (self._calls or self._plain or self.graphs.open)

    def sent(self, messages: list[m.Message]) -> list[m.Message]:
        """Note what is about to be sent; return it without what is to be released only later."""
        are_less = False
        for message in messages:
            if isinstance(message, m.Submit):
                function = self._functions.get(message.function)
                if function is None:
                    # The scheduler will not take it either.
                    continue
                number = message.first >> CALL_BITS
                needs = message.objects or function.objects
                if not number and not needs:
                    self._plain.append((message, function))
                    continue
                run = Run(message, function)
                if needs:
                    self.objects.use(run.needs)
                call = self._calls.get(number)
                if call is None:
                    call = self._calls[number] = _Call(self.objects)
                call.add(run)
            elif isinstance(message, m.Function):
                self._functions[message.function] = message
            elif isinstance(message, m.Forget):
                self._functions.pop(message.function, None)
            elif isinstance(message, m.Graph):
                self.graphs.sent(message, self._functions)
            elif isinstance(message, m.Object):
                self.objects.offered(message)
            elif isinstance(message, m.Release):
                message.objects = self.objects.let_go(message.objects)
                are_less |= not message.objects
            elif isinstance(message, m.Cancel):
                if message.queued_only:
                    self._taken_back = message
                else:
                    self._given_up(message.first, message.first + message.count)
        if are_less:
            return [one for one in messages if not isinstance(one, m.Release) or one.objects]
        return messages

    def _given_up(self, first: int, stop: int) -> None:
        """Single tasks are cancelled, nodes of a graph, or a map as a whole."""
        number = first >> CALL_BITS
        if number and (call := self._calls.pop(number, None)) is not None:
            call.drop()
            return
        self.recount(first, stop)

    def came(self, first: int, count: int) -> None:
        """Contiguous tasks came back or were given up, each for the first time."""
        number = first >> CALL_BITS
        if not number and self._plain:
            self._count_plain(count)
        if self.graphs.open:
            self.graphs.came(first, first + count)
        if self._calls:
            call = self._calls.get(number)
            if call is not None and call.came(first, first + count, is_map=number > 0):
                del self._calls[number]

    def _count_plain(self, came: int) -> None:
        """So many single tasks came back: look through those that need no objects, in good time."""
        if not self._waiters:
            # As after a round trip of a lone task.
            self._plain.clear()
            self._plain_left = self._plain_came = 0
            return
        self._plain_came += came
        if self._plain_came >= max(self._plain_left, DEAD_MIN):
            self._forget_plain()

    def _forget_plain(self) -> None:
        """Forget single tasks that need no objects, where all of one message came back."""
        waits = self._waiters.__contains__
        self._plain = [one for one in self._plain if any(map(waits, _tasks_of(one[0])))]
        self._plain_left = sum(len(submit.batch) for submit, _ in self._plain)
        self._plain_came = 0

    def recount(self, first: int, stop: int) -> None:
        """Some of these tasks came back; others had been given up. They are of no map."""
        if self.graphs.open:
            self.graphs.came(first, stop)
        if first >> CALL_BITS:
            return
        call = self._calls.get(0)
        if call is not None and call.recount(first, stop, self._waiters):
            del self._calls[0]
        self._count_plain(stop - first)

    def again(
        self,
        unsent: Iterable[m.Message],
        homes: Sequence[m.StorageEndpoint],
        first_segment: int,
        *,
        is_judged: bool,
    ) -> tuple[list[m.Message], list[m.Failed]]:
        """Return what to say to a scheduler that knows nothing, and what is not asked for again.

        ``unsent`` was not said before, and is said after what was. What was stored is still in the
        ``homes``; without any, it is gone. What is about to be offered is in segments from the
        ``first_segment`` on. What must not start twice is asked for again if ``is_judged``: if the
        scheduler finds out whether it was started.
        """
        words = _Words()
        for asked_run, part in self._open_runs():
            if part.options.at_most_once and not is_judged:
                # It may have been started.
                words.failed += _all_lost(part)
            else:
                words.say(part, asked_run.function)
        for function, message in self.graphs.again(words.failed, is_stored=bool(homes)):
            words.say(message, function)
        unsent = list(unsent)
        # What was about to be asked again may have been started by a scheduler before the last.
        is_new = not any(type(message) is m.Resumed for message in unsent)
        if is_judged and is_new:
            offers = (one.segment for one in unsent if isinstance(one, m.Object))
            first_segment = min(map(segment_number, offers), default=first_segment)
            words.messages.append(m.Resumed(first_segment))
        if self._taken_back is not None:
            words.messages.append(self._taken_back)
        self._say_unsent(words, unsent, is_new=is_new, is_judged=is_judged, is_stored=bool(homes))
        messages = words.messages
        if homes:
            needed = {one for message in messages for one in _objects_of(message)}
            return self.objects.again(needed, homes) + messages, words.failed
        self.objects.forget()
        # Whose objects are gone would be taken for known, but its tasks would fail.
        messages += [m.Forget(one) for one, function in words.taught.items() if function.objects]
        return messages, words.failed

    def _say_unsent(
        self,
        words: _Words,
        unsent: Iterable[m.Message],
        *,
        is_new: bool,
        is_judged: bool,
        is_stored: bool,
    ) -> None:
        """Say what was not said before; it ``is_new`` if no scheduler before can have heard it."""
        before, self._functions = self._functions, {}
        gone = GONE if is_stored else (*GONE, m.Object, m.Release)
        for message in unsent:
            if isinstance(message, m.Function):
                words.teach(message)
            elif type(message) is m.Resumed:
                is_new = True
                if is_judged:
                    words.messages.append(message)
            elif (
                isinstance(message, m.Submit)
                and message.options.at_most_once
                and not (is_new or is_judged)
            ):
                words.failed += _all_lost(message)
            elif isinstance(message, m.Graph) and self.graphs.is_void(message):
                continue
            elif isinstance(message, m.Submit) or (
                isinstance(message, m.Graph) and not message.start
            ):
                function = words.taught.get(message.function) or before[message.function]
                if isinstance(message, m.Graph) and function.objects and not is_stored:
                    words.failed += self.graphs.fail(message, m.FAILED_MISSING)
                    continue
                words.say(message, function)
            elif isinstance(message, m.Forget):
                if words.taught.pop(message.function, None) is not None:
                    words.messages.append(message)
            elif not isinstance(message, gone):
                words.messages.append(message)

    def _open_runs(self) -> Iterator[tuple[Run, m.Submit]]:
        """Yield what was asked for and has not come back, and forget it."""
        for submit, function in self._plain:
            self._calls.setdefault(0, _Call(self.objects)).add(Run(submit, function))
        self._plain.clear()
        calls, self._calls = self._calls, {}
        for number, call in sorted(calls.items()):
            for run in call.runs():
                for start, stop in self._left(run, is_map=number > 0):
                    yield run, part_of(run.submit, start, stop)

    def _left(self, run: Run, *, is_map: bool) -> list[tuple[int, int]]:
        """Return where tasks begin and end that have not come back, from the run's first on."""
        first, waiters = run.submit.first, self._waiters
        came = {task for tasks in run.came or () for task in tasks}
        left = [
            task - first
            for task in range(first, run.stop)
            if (task not in came if is_map else task in waiters)
        ]
        return ranges_of(left)


def _tasks_of(submit: m.Submit) -> range:
    return range(submit.first, submit.first + len(submit.batch))


def _all_lost(submit: m.Submit) -> list[m.Failed]:
    return [lost(task) for task in _tasks_of(submit)]


def _objects_of(message: m.Message) -> tuple[bytes, ...]:
    """Return what is needed for what a message asks for."""
    return message.objects if isinstance(message, m.Submit | m.Function | m.Graph) else ()


class _Words:
    """What is said to a scheduler that knows nothing, and what is not asked for again."""

    def __init__(self) -> None:
        self.messages: list[m.Message] = []
        self.failed: list[m.Failed] = []
        self.taught: dict[bytes, m.Function] = {}

    def teach(self, function: m.Function) -> None:
        """Say a function, once."""
        if function.function not in self.taught:
            self.taught[function.function] = function
            self.messages.append(function)

    def say(self, message: m.Message, function: m.Function) -> None:
        """Say a message, and before it the function that it names."""
        self.teach(function)
        self.messages.append(message)


class _Call:
    """The runs of one call, in the order of their tasks."""

    def __init__(self, objects: HeldObjects) -> None:
        self._objects = objects
        self._runs: dict[int, Run] = {}
        """By the first task of each."""
        self._firsts: list[int] = []
        """Of these runs, and of some that have come back."""

    def runs(self) -> list[Run]:
        return [self._runs[first] for first in self._firsts if first in self._runs]

    def add(self, run: Run) -> None:
        first = run.submit.first
        self._runs[first] = run
        # Nearly always at the end.
        insort(self._firsts, first)

    def came(self, first: int, stop: int, *, is_map: bool) -> bool:
        """Contiguous tasks came back; return True if none is left."""
        alone = self._runs.get(first)
        if alone is not None and stop - first == alone.left:
            # As most do: all that is left of it, in one message.
            self._drop(alone)
            return self._tidy()
        for run, start, end in self._within(first, stop):
            run.left -= end - start
            if run.left and is_map:
                if run.came is None:
                    run.came = []
                run.came.append(range(start, end))
            self._drop_if_over(run)
        return self._tidy()

    def recount(self, first: int, stop: int, waiters: Container[int]) -> bool:
        """Count again what is left of runs; return True if nothing is."""
        for run, _, _ in self._within(first, stop):
            run.left = sum(task in waiters for task in range(run.submit.first, run.stop))
            self._drop_if_over(run)
        return self._tidy()

    def _within(self, first: int, stop: int) -> Iterator[tuple[Run, int, int]]:
        """Yield the runs that these tasks belong to, each with its part of them."""
        runs, firsts = self._runs, self._firsts
        while first < stop:
            run = runs.get(first)
            if run is None:
                at = bisect_right(firsts, first)
                run = runs.get(firsts[at - 1]) if at else None
                if run is None or first >= run.stop:
                    # Nodes of graphs have numbers as well.
                    first = firsts[at] if at < len(firsts) else stop
                    continue
            end = min(stop, run.stop)
            yield run, first, end
            first = end

    def drop(self) -> None:
        """Nobody waits for any of it."""
        for run in self._runs.values():
            self._objects.used(run.needs)

    def _drop_if_over(self, run: Run) -> None:
        if not run.left:
            self._drop(run)

    def _drop(self, run: Run) -> None:
        del self._runs[run.submit.first]
        if run.needs:
            self._objects.used(run.needs)

    def _tidy(self) -> bool:
        """Forget numbers of runs that are over, if there are many; return True if all are."""
        runs, firsts = self._runs, self._firsts
        if len(firsts) - len(runs) >= max(len(runs), DEAD_MIN):
            self._firsts = [one for one in firsts if one in runs]
        return not runs
