"""What public calls accept, and what they say of anything else."""

from __future__ import annotations

import contextlib
import math
from concurrent.futures import Future
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster import arguments
from scaler_cluster.errors import ConfigError
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch
from scaler_cluster.wire.codec import decode, encode

NO_NUMBERS = ["5", None, True, [1], 1 + 0j, Decimal(1), np.True_, np.ones(3)]


# -- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [3, np.int64(3), np.uint8(3)])
def test_whole_numbers_become_python_s(number) -> None:
    """Whole numbers of numpy are accepted, and become Python's."""
    assert type(arguments.whole("n", number)) is int
    assert arguments.whole("n", number, 3) == 3


@pytest.mark.parametrize("wrong", [*NO_NUMBERS, 1.0, math.nan, np.float64(1), Fraction(3)])
def test_what_is_no_whole_number_is_a_type_error(wrong) -> None:
    """The TypeError names the argument, what it takes, and what it got."""
    with pytest.raises(TypeError, match=r"^n must be an integer, not ") as caught:
        arguments.whole("n", wrong)

    assert len(str(caught.value)) < 200


def test_whole_numbers_have_bounds() -> None:
    """A number that is too small, or that no message can hold, is a ConfigError."""
    with pytest.raises(ConfigError, match="^n must be 1 or more, not 0$"):
        arguments.whole("n", 0, 1)
    with pytest.raises(ConfigError, match="^n must be greater than 0, not -1$"):
        arguments.whole("n", np.int8(-1), 1, bound="greater than 0")
    for number in (1 << 63, -(1 << 63), 10**5000, -(10**5000)):
        with pytest.raises(ConfigError, match="^n must "):
            arguments.whole("n", number)


@pytest.mark.parametrize("number", [2, 2.0, np.float32(2), np.int64(2), Fraction(2)])
def test_seconds_become_python_s(number) -> None:
    """Any real number is accepted as a number of seconds."""
    assert type(arguments.seconds("t", number)) is float
    assert arguments.seconds("t", number) == 2.0


@pytest.mark.parametrize("wrong", NO_NUMBERS)
def test_what_are_no_seconds_is_a_type_error(wrong) -> None:
    """Text is not accepted as a number of seconds."""
    with pytest.raises(TypeError, match="^t must be a number of seconds, not "):
        arguments.seconds("t", wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        0,
        -1,
        math.nan,
        math.inf,
        -math.inf,
        1e10,
        np.float64("nan"),
        10**400,
        -(10**400),
        Fraction(10**400),
    ],
)
def test_seconds_have_bounds(wrong) -> None:
    """A duration is positive, and at most some years: the system's own waits take no more."""
    with pytest.raises(ConfigError, match="^t must be .* seconds"):
        arguments.seconds("t", wrong)


def test_seconds_may_be_over() -> None:
    """A wait that may be over before it begins takes negative seconds, but not nan."""
    assert arguments.seconds("t", -1, any_sign=True) == -1.0
    with pytest.raises(ConfigError, match="not nan"):
        arguments.seconds("t", math.nan, any_sign=True)


# -- sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "nbytes"),
    [
        ("2GB", 2 * 10**9),
        ("512 MiB", 512 << 20),
        ("1.5 GiB", 3 << 29),
        ("64k", 64_000),
        ("64Ki", 64 << 10),
        ("64KB", 64_000),
        ("1tb", 10**12),
        ("1 PiB", 1 << 50),
        (" 1000 ", 1000),
        ("1000B", 1000),
        (".5 kB", 500),
        ("0.1 KiB", 102),
        ("3.", 3),
        (5, 5),
        (2e9, 2 * 10**9),
        (np.int64(7), 7),
        (np.float64(7), 7),
    ],
)
def test_sizes_are_texts_or_numbers(given, nbytes) -> None:
    """A kB has 1000 bytes and a KiB 1024, in upper or lower case."""
    size = arguments.size("s", given)

    assert (size, type(size)) == (nbytes, int)


@pytest.mark.parametrize(
    "wrong",
    ["", "GB", "2 G B", "2GBs", "2XB", "-1", "-1 GB", "1e9", "1,000", "1_000", "0x10", "5iB",
     "2 GB of it", "1.2.3", "nan", "²", 0.5, math.inf, math.nan, 0, -5, "0", "0.1", 1 << 63,
     "9" * 5000],
)  # fmt: skip
def test_what_is_no_size_is_a_config_error(wrong) -> None:
    """The ConfigError of a wrong size has an example, or names the bound."""
    with pytest.raises(ConfigError, match="^s must be "):
        arguments.size("s", wrong)


@pytest.mark.parametrize("wrong", [None, True, [1], b"2GB", 1j])
def test_a_size_of_another_type_is_a_type_error(wrong) -> None:
    """A size of another type is a TypeError, also True, which Python counts as a number."""
    with pytest.raises(TypeError, match="^s must be a number of bytes or a text such as 2GB"):
        arguments.size("s", wrong)


@given(st.integers(0, 10**6), st.sampled_from("kMGT"), st.sampled_from(["", "i"]))
def test_sizes_multiply(number, prefix, binary) -> None:
    """A unit multiplies the number before it, with or without a space and the B."""
    unit = (1024 if binary else 1000) ** ("kMGT".index(prefix) + 1)
    for text in (f"{number}{prefix}{binary}", f"{number} {prefix.lower()}{binary}B"):
        assert arguments.read_size(text) == number * unit


@given(st.text(max_size=12))
def test_any_text_is_a_size_or_is_not(text) -> None:
    """Any text is a size, or a ConfigError."""
    with contextlib.suppress(ConfigError):
        assert arguments.size("s", text) > 0


# -- others --------------------------------------------------------------------------------------


def test_what_is_called_can_be_called() -> None:
    """The error about something that cannot be called names the likely slip."""
    assert arguments.function(abs, "submit") is abs
    with pytest.raises(TypeError, match=r"not None: write submit\(fn, x\), not submit\(fn\(x\)\)"):
        arguments.function(None, "submit")  # type: ignore[type-var]
    with pytest.raises(TypeError, match=r"not a future: .* submit\(fn, future\)"):
        arguments.function(Future(), "submit")  # type: ignore[type-var]


@pytest.mark.parametrize("wrong", [1, 0, None, "yes"])
def test_a_flag_is_true_or_false(wrong) -> None:
    """A flag takes True and False, and nothing else that is true or false."""
    assert arguments.flag("f", True) is True
    with pytest.raises(TypeError, match="^f must be True or False, not "):
        arguments.flag("f", wrong)


def test_capabilities_become_python_s() -> None:
    """Capabilities keep the order of their names, and their numbers become Python's."""
    assert arguments.capabilities("c", None) == ()
    found = arguments.capabilities("c", {"gpu": np.int64(1), "b": np.float32(0.5), "a": -1})

    assert found == (("a", -1), ("b", 0.5), ("gpu", 1))
    assert [type(amount) for _, amount in found] == [int, float, int]


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (["gpu"], TypeError, r'^c must be a mapping such as \{"gpu": 1\}, not \[\'gpu\'\]'),
        ("gpu", TypeError, "^c must be a mapping"),
        ({1: 1}, TypeError, "^c must have texts as names, not 1"),
        ({"": 1}, ConfigError, "^c must have names of 1 to"),
        ({"x" * 2000: 1}, ConfigError, "^c must have names of 1 to"),
        ({"gpu": "1"}, TypeError, r"^c\['gpu'\] must be a number, not '1'"),
        ({"gpu": None}, TypeError, r"^c\['gpu'\] must be a number"),
        ({"gpu": True}, TypeError, r"^c\['gpu'\] must be a number"),
        ({"gpu": -2}, ConfigError, r"^c\['gpu'\] must be an amount of 0 or more, or -1"),
        ({"gpu": math.nan}, ConfigError, r"^c\['gpu'\] must be an amount"),
        ({"gpu": math.inf}, ConfigError, r"^c\['gpu'\] must be an amount"),
        ({"gpu": 10**400}, ConfigError, r"^c\['gpu'\] must be an amount"),
        ({str(n): 1 for n in range(300)}, ConfigError, "^c must be 256 at most"),
    ],
)
def test_what_are_no_capabilities(wrong, error, message) -> None:
    """Each wrong form of capabilities has an error of its own."""
    with pytest.raises(error, match=message):
        arguments.capabilities("c", wrong)


@pytest.mark.parametrize(
    "wrong", [3, [1], [""], ["x" * 2000], {"a": 1}.items(), [str(n) for n in range(70_000)]]
)
def test_what_are_no_names(wrong) -> None:
    """A name is a text; too long names and too many of them are refused."""
    assert arguments.names("w", "a") == ("a",)
    assert arguments.names("w", {"b", "a"}) == ("a", "b")
    with pytest.raises((TypeError, ConfigError), match="^w must "):
        arguments.names("w", wrong)


integers = st.integers() | st.integers(-128, 127).map(np.int8)
numbers = integers | st.just(10**5000) | st.floats() | st.floats(width=32).map(np.float32)


@given(integers, numbers, integers, st.booleans(), st.dictionaries(st.text(), numbers))
def test_what_is_accepted_can_be_sent(priority, timeout, retries, streams, capabilities) -> None:
    """The scheduler understands whatever a check lets pass."""
    try:
        options = m.TaskOptions(
            priority=arguments.whole("priority", priority),
            timeout_s=arguments.seconds("timeout", timeout),
            retries=arguments.whole("retries", retries, 0),
            stream_output=arguments.flag("stream_output", streams),
            capabilities=arguments.capabilities("capabilities", capabilities),
        )
    except (TypeError, ConfigError):
        return
    submission = m.Submit(0, bytes(16), 0, options, Batch.single(b""))
    (received,) = decode(encode(1, 1, 0, [submission])).messages

    assert isinstance(received, m.Submit)
    assert received.options == options
