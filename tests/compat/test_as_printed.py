"""What the documents of Scaler print runs as printed.

The programs stand in ``examples/as_printed``; where the documents themselves are at hand, each is
compared with them, token by token, and what they print besides must be named here, with a reason.
"""

from __future__ import annotations

import contextlib
import io
import re
import socket
import subprocess
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path

import pytest

from scaler import SchedulerClusterCombo
from tests.runtime.helpers import BOUND_S, environment, wait_until
from tests.runtime.shell import Shell

ROOT = Path(__file__).parents[2]
PRINTED = ROOT / "examples" / "as_printed"
DOCUMENTS = sorted((ROOT.parent / "shared" / "seeds").glob("*.txt"))
ADDRESS = "tcp://127.0.0.1:2345"

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Program:
    """A program, and what must stand around it, as it is printed amid prose."""

    name: str
    output: str = ""
    address: str = ""
    """Where a scheduler is expected to run."""
    before: str = ""
    after: str = ""
    changed: str = ""
    """Why it is not as printed."""


CLIENT = f"""
from scaler import Client
client = Client(address="{ADDRESS}")
"""
FRAMES = """
import pandas
def load_dataframe():
    return pandas.DataFrame({"used": [1.0] * 100_000, "unused": [2.0] * 100_000})
def train(frame):
    return sorted(frame.columns)
"""
USE_SERIALIZER = f"""
from scaler import Client
def describe(frame, number):
    return frame * number
with Client(address="{ADDRESS}", serializer=CustomSerializer) as client:
    frame = pd.DataFrame({{"a": [1.0, 2.0]}})
    print(client.submit(describe, frame, 3).result().a.tolist(), client.submit(abs, 7).result())
"""
PROGRAMS = [
    Program("simple_client.py", r"661\.46\d+"),
    Program("reserialize.py", r"\['used'\]", ADDRESS, before=FRAMES + CLIENT, after="""
print(client.submit(train, data).result())
client.disconnect()
"""),
    Program("send_heavy_object.py", r"\[(49, ){99}49\]"),
    Program("profiling.py", r"[1-9]\d*,\d+", ADDRESS, after="""
info = fut.profiling_info()
print(max(info.duration_us, 1), info.peak_memory, sep=",")
client.disconnect()
"""),
    Program("send_object_client.py", r"1\n2"),
    Program("graphtask_client.py",
            r"1\n\{'a': 2, 'b': 2, 'c': 3, 'd': 4, 'e': 1, 'f': <function add at 0x\w+>\}"),
    Program("nested_client.py", "21"),
    Program("graphtask_nested_client.py", "21"),
    Program("disconnect_client.py"),
    Program("custom_serializer.py", r"\[3\.0, 6\.0\] 7", ADDRESS, after=USE_SERIALIZER),
    Program("serializer_calls.py", "3", ADDRESS, before=CLIENT, after="""
print(client.submit(add, 1, 2).result())
"""),
    Program("first_look.py", r"4\.0\n661\.46\d+", ADDRESS),
    Program("local_cluster.py"),
    Program("square.py", "16", ADDRESS),
    Program("graph.py", r"\{'e': 1\}", ADDRESS),
    Program("nested.py", "21", ADDRESS),
    Program("capabilities.py", "3", ADDRESS),
    Program("event_loop.py"),
    Program("heavy_function.py", r"\[(\d+, ){99}\d+\]",
            changed="printed with 5 GB, as what not to do"),
    Program("map_client.py", "", "tcp://127.0.0.1:8516",
            before="tasks = list(range(100))\ndef calculate(n):\n    return n\n",
            changed="printed with a parenthesis missing, on one line"),
]  # fmt: skip


# -- they run --------------------------------------------------------------------------------


@contextlib.contextmanager
def alone_at(port: int):
    """Keep others of our tests, also those of another run, from using a fixed port meanwhile."""
    with socket.socket(socket.AF_UNIX) as lock:

        def is_mine() -> bool:
            with contextlib.suppress(OSError):
                lock.bind(f"\0scaler-tests-{port}")
                return True
            return False

        wait_until(is_mine, f"somebody else's tests keep port {port}", 3 * BOUND_S)
        yield


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_it_runs(program, tmp_path) -> None:
    """A program of the documents ends well, and prints what it says that it prints."""
    file = PRINTED / program.name
    if program.before or program.after:
        file = tmp_path / program.name
        printed = (PRINTED / program.name).read_text()
        file.write_text(f"{program.before}\n{printed}\n{program.after}")
    with contextlib.ExitStack() as stack:
        stack.enter_context(alone_at(2345))
        if program.address:
            offers = {"gpu": -1, "linux": -1}
            cluster = SchedulerClusterCombo(4, program.address, per_worker_capabilities=offers)
            stack.enter_context(cluster)
        done = subprocess.run(
            [sys.executable, str(file)],
            capture_output=True,
            text=True,
            timeout=100,
            env=environment(),
            check=False,
        )

    assert done.returncode == 0, done.stderr
    assert re.fullmatch(program.output, done.stdout.strip()), done.stdout


# -- commands --------------------------------------------------------------------------------

SESSIONS = [
    (["scaler_scheduler tcp://127.0.0.1:8516", "scaler_worker -n 10 tcp://127.0.0.1:8516"],
     "map_client.py"),
    (["scaler_scheduler tcp://127.0.0.1:2345", "scaler_cluster -n 4 tcp://127.0.0.1:2345"],
     "square.py"),
    (['scaler_scheduler "tcp://127.0.0.1:2345"', "scaler_cluster -n 4 tcp://127.0.0.1:2345"],
     "first_look.py"),
    (["scaler_scheduler --event-loop uvloop tcp://127.0.0.1:2345",
      "scaler_cluster -n 4 tcp://127.0.0.1:2345"], "graph.py"),
    (["scaler_scheduler --allocate-policy capability tcp://127.0.0.1:2345",
      'scaler_cluster -n 4 --per-worker-capabilities "gpu,linux" tcp://127.0.0.1:2345'],
     "capabilities.py"),
    (["scaler_worker_adapter_native tcp://127.0.0.1:2345 --host 127.0.0.1 --port 8080",
      "scaler_scheduler tcp://127.0.0.1:2345 --adapter-webhook-url http://127.0.0.1:8080"],
     "first_look.py"),
    (["scaler_scheduler -h"], ""),
    (["scaler_cluster -h"], ""),
    (["scaler_object_storage_server -h"], ""),
]  # fmt: skip
"""Commands as they are printed together, and the program that shows that they work."""
ELSEWHERE = {
    "scaler_top": "needs a terminal: tests/runtime/test_top.py has one",
    "scaler_ui": "needs a browser: tests/runtime/test_dashboard_pages.py has one",
    "scaler_symphony_cluster": "with a stand-in of Symphony: tests/provision/test_symphony.py",
    "scaler_worker_adapter_symphony": "as the one above",
    "--config": "paths of a whole machine: tests/runtime/test_commands.py has the scenarios",
}
"""What is printed and does not run here."""


@pytest.mark.parametrize(("commands", "name"), SESSIONS, ids=lambda value: str(value)[:60])
def test_commands_run(commands, name, tmp_path) -> None:
    """The printed commands and then the program run in terminals; all of them end by Ctrl-C."""
    shell = Shell(tmp_path)
    with contextlib.ExitStack() as stack:
        stack.enter_context(alone_at(2345))
        stack.callback(shell.close)
        started = [shell.start(command) for command in commands]
        if not name:
            assert started[0].end() == 0
            assert "usage: " in started[0].out
            return
        program = next(one for one in PROGRAMS if one.name == name)
        printed = (PRINTED / name).read_text()
        output = shell.python(f"{program.before}\n{printed}")
        assert re.fullmatch(program.output, output.strip()), output
        assert [one.interrupt() for one in reversed(started)] == [0] * len(started)


@pytest.mark.skipif(not DOCUMENTS, reason="the documents are not at hand")
def test_no_command_is_left_out() -> None:
    """A command in a document is run by a test, or is named here with a reason."""
    printed = "\n".join(document.read_text() for document in DOCUMENTS)
    known = [command for commands, _ in SESSIONS for command in commands]
    typed = re.findall(r"(?m)(?:^\$ |^|bash )(scaler_[a-z_]+ [-\"t][^\n]*)", printed)

    assert len(typed) > 10
    assert [] == [
        line
        for line in typed
        if not any(line.startswith(one) for one in known)
        and not any(name in line for name in ELSEWHERE)
    ]
    assert [] == [command for command in known if command not in printed]


# -- they are what is printed ----------------------------------------------------------------

GAP = r"(?:\s|#[^\n]*)*"
"""Comments are ours, and what was made of line breaks and indentation is the document's."""
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
          tokenize.ENCODING, tokenize.ENDMARKER}  # fmt: skip

NOT_HERE = {
    r"class Message\(soamapi\.Message\):.+?def on_destroy_service\(self\):\s+return":
        "a service of IBM Spectrum Symphony: tests/provision/test_symphony.py runs it",
    r"from scaler import Client, SchedulerClusterCombo def lookup.+?main\(\)":
        "5 GB: see heavy_function.py",
    r"from scaler import Client address = .+?assert results == tasks":
        "a parenthesis is missing: see map_client.py",
    r"graphtask_nested_client\.py for more": "a sentence",
}  # fmt: skip
"""Programs in the documents that do not run here, and why."""


def tokens_of(program: Program) -> list[str]:
    """Return the tokens of a program, without its own comments and its docstring."""
    text = (PRINTED / program.name).read_text()
    found = tokenize.generate_tokens(io.StringIO(text).readline)
    tokens = [token.string for token in found if token.type not in LAYOUT]
    return tokens[1:] if tokens[0].startswith('"""') else tokens


def find_in(program: Program, document: str) -> list[tuple[int, int]]:
    """Return where a program is printed."""
    pattern = GAP.join(map(re.escape, tokens_of(program)))
    return [match.span() for match in re.finditer(pattern, document)]


@pytest.mark.skipif(not DOCUMENTS, reason="the documents are not at hand")
@pytest.mark.parametrize(
    "program", [one for one in PROGRAMS if not one.changed], ids=lambda program: program.name
)
def test_it_is_as_printed(program) -> None:
    """Some document has the same tokens as the program, in the same order."""
    assert any(find_in(program, document.read_text()) for document in DOCUMENTS)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.stem)
def test_nothing_is_left_out(document) -> None:
    """A printed program that imports ``scaler`` is among the examples, or does not run."""
    text = document.read_text()
    known = [span for program in PROGRAMS for span in find_in(program, text)]
    for pattern in NOT_HERE:
        known += [match.span() for match in re.finditer(pattern, text, re.DOTALL)]
    imports = [match.start() for match in re.finditer(r"from scaler[\w.]* import|soamapi\.M", text)]

    assert [] == [
        text[start : start + 100]
        for start in imports
        if not any(first <= start < last for first, last in known)
    ]


def test_every_file_is_run() -> None:
    """Every example file is run by a test."""
    assert {path.name for path in PRINTED.glob("*.py")} == {program.name for program in PROGRAMS}
