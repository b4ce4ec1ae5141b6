"""The same programs on every engine: each answers as if its calls had been made here, at once."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings

from tests.differential import errands, player, scenes
from tests.differential.strategies import CHANGED_BY, VALUES, programs

EXAMPLES = int(os.environ.get("SCALER_EXAMPLES", "20"))
"""Programs made at random for each test: always the same ones, unless it is set."""

generated = settings(
    max_examples=EXAMPLES,
    derandomize="SCALER_EXAMPLES" not in os.environ,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
OURS = ("executor", "client")
LARGE = tuple(name for name in VALUES if name not in {"plain", "others", "bytes", "text"})


def check(play, program, *engines) -> None:
    """Have engines play a program, and compare their answers with the model's."""
    answers = play(program, "model", *engines)
    model = answers.pop("model")
    for engine, given_ in answers.items():
        assert model == given_, engine


def is_settled(step) -> bool:
    """Return True for a call of which ProcessPoolExecutor, too, knows the answer."""
    by_name = step[1] not in player.ONLY_BY_VALUE
    return by_name and not (step[0] == "map" and step[2][0] == "reuse")


def settled(program) -> list:
    """Return a program without the calls of which ProcessPoolExecutor does not know the answer."""
    return [step for step in program if step[0] not in {"submit", "map"} or is_settled(step)]


# -- made at random --------------------------------------------------------------------------------


@pytest.mark.timeout(120 + 2 * EXAMPLES)
@generated
@given(program=programs())
def test_our_engines_answer_like_the_model(play, program) -> None:
    """What is changed after a call, of its arguments or its function, is not seen by it."""
    check(play, program, *OURS)


@pytest.mark.timeout(120 + 2 * EXAMPLES)
@generated
@given(program=programs())
def test_a_fresh_pool_of_forked_processes_answers_like_the_model(play, program) -> None:
    """What the model says is right is what ProcessPoolExecutor does."""
    check(play, settled(program), "fork")


# -- written down ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LARGE)
def test_a_loop_that_changes_its_argument(play, name) -> None:
    """Each call gets what its argument held then: arrays, views, frames, buffers, memory maps."""
    loop: list[list] = [["submit", "shows", [["value", name]]], ["change", name, 1]]
    kept = [["submit", "same", [["value", name]]], ["change", name, 2]]
    program = [*3 * loop, *2 * kept, ["settle"], *2 * loop]
    answers = play(program, "model", "fork", *OURS)

    assert answers["executor"] == answers["client"] == answers["fork"] == answers["model"]
    assert len(set(map(str, answers["model"]))) == 7


@pytest.mark.parametrize(
    "options", [{}, {"chunksize": 3}, {"buffersize": 2}, {"chunksize": 2, "buffersize": 3}], ids=str
)
def test_a_generator_that_changes_what_it_yielded(play, options) -> None:
    """Each call of a map gets what its item held when the map took it."""
    program: list[list] = [["map", "shows", ["reuse", name, 4], options] for name in LARGE]
    check(play, program, *OURS)


@pytest.mark.parametrize("name", [name for name in CHANGED_BY if CHANGED_BY[name]])
def test_what_a_function_refers_to_is_changed(play, name) -> None:
    """Each call sees the globals, cells, defaults and attributes of its moment, large ones too."""
    call: list = ["submit", name, [["literal", 1]]]
    mapped: list = ["map", name, ["list", [["literal", 1], ["literal", 2]]], {}]
    changes: list[list] = [
        ["change", change, number] for number in (1, 2, 1) for change in CHANGED_BY[name]
    ]
    program = [call, call, mapped]
    for change in changes:
        program += [change, call, call, mapped]
    check(play, [*program, ["settle"], *program], *OURS)
    check(play, settled(program), "fork")


def test_odd_results_and_exceptions(play) -> None:
    """What functions raise and return comes back as it is, from processes however started."""
    kinds = {"fails": errands.FAILURES, "gives": errands.RESULTS}
    literals = [
        *((name, kind) for name, known in kinds.items() for kind in known),
        *((name, value) for name in ("exits", "forks", "threads") for value in (1, 3)),
        ("fibonacci", 40),
        ("exits", None),
        ("exits", "text"),
        ("runs", "text"),
    ]
    program: list[list] = [["submit", name, [["literal", value]]] for name, value in literals]
    program += [["submit", name, [["value", "plain"]]] for name in ("fails_own", "gives_own")]
    program += [["map", "sometimes_fails", ["list", [["literal", n] for n in range(6)]], {}]]
    check(play, program, "fork", "spawn", *OURS)


def test_every_value_there_and_back(play) -> None:
    """Arguments of each kind arrive, and return, from processes however started."""
    program = [
        ["submit", name, [["value", value]]] for value in VALUES for name in ("shows", "same")
    ]
    check(play, program, "fork", "spawn", *OURS)


@pytest.mark.parametrize("scene", [one.__name__ for one in scenes.ALL])
def test_scene(play, scene) -> None:
    """Cancelling, callbacks, timeouts and ends are those of ProcessPoolExecutor."""
    answers = play([["scene", scene]], "fork", "executor")

    assert answers["executor"] == answers["fork"]
    assert answers["executor"][0][0] == "returned"
