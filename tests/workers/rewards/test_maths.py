"""Final answers compared as mathematics, in a process that may be slow, large or hostile."""

import signal

import pytest

from tests.workers.recipes.language import user
from workers.config.rewards import VerifierSettings
from workers.contract.events import RecipeError
from workers.data.snapshot import Prompt
from workers.rewards.maths import Unreadable, same
from workers.rewards.verifier import MathsProcess, TooSlow, Verifier

ALIKE = [
    (r"\frac{1}{2}", "0.5"),
    (r"\dfrac12", "1/2"),
    (r"50\%", "0.5"),
    ("50%", "50"),
    ("1,234", "1234"),
    ("x = 3", "3"),
    (r"2\sqrt{3}", r"\sqrt{12}"),
    ("(1, 2)", "(1,2)"),
    (r"\{1,2\}", r"\{2, 1\}"),
    ("1 or 2", "2, 1"),
    (r"\pm 2", "2, -2"),
    ("x^2+2x+1", "(x+1)^2"),
    (r"3\pi/4", r"\frac{3\pi}{4}"),
    (r"90^\circ", "90"),
    (r"$\left[0, 1\right)$.", "[0,1)"),
    ("sin(pi/6)", "1/2"),
    ("10!/8!", "90"),
    ("5 \\text{ cm}", "5"),
]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_answers_that_are_the_same_are_told_so_in_both_directions(one: str, other: str) -> None:
    assert same(one, other)
    assert same(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("(1,2)", "(2,1)"),
        ("[0,1)", "[0,1]"),
        ("1/3", "0.333"),
        ("-3", "3"),
        ("x+1", "x"),
        ("1,2", "1"),
    ],
)
def test_answers_that_differ_are_told_apart(one: str, other: str) -> None:
    assert not same(one, other)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('touch /tmp/x')",
        "().__class__",
        "9**9**9",
        "10^{10^{10}}",
        "999!",
        "1/0",
        "the answer",
        "(1,2) + 3",
        "((((1",
        "(" * 80 + "1" + ")" * 80,
        "x" * 501,
        "",
        "\\begin{matrix}1\\end{matrix}",
    ],
)
def test_what_is_no_answer_is_not_read_and_nothing_of_it_is_run(text: str) -> None:
    with pytest.raises(Unreadable):
        same(text, "1")


def test_a_verifier_takes_the_boxed_answer_and_what_cannot_be_read_is_missing() -> None:
    settings = VerifierSettings(check_="maths", take="boxed", missing=-1.0)
    half = Prompt(user("sun"), answer=r"\frac12")
    verifier = Verifier(settings, [half])
    answers = [r"so \boxed{0.5}", r"\boxed{\frac{2}{3}}", r"\boxed{half of it}", "0.5"]
    assert verifier.score([half.messages] * 4, answers).values == [1.0, 0.0, -1.0, -1.0]
    # A process that was killed, as by the system for its memory, is replaced.
    process = verifier._process
    process._child.kill()
    process._child.wait()
    with pytest.raises(TooSlow):
        process.same("1", "1")
    assert process.same("1", "2") is False
    with pytest.raises(RecipeError, match="cannot be read as mathematics"):
        Verifier(settings, [Prompt(user("rain"), answer="rain")])


def test_a_comparison_that_takes_too_long_is_ended() -> None:
    process = MathsProcess()
    assert process.same("1", "1")
    process._child.send_signal(signal.SIGSTOP)
    process._seconds = 0.05
    with pytest.raises(TooSlow):
        process.same("1", "1")
