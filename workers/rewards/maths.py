r"""Whether two final answers are the same mathematics. As a program it answers line by line.

    >>> same(r"\frac{1}{2}", "0.5")
    True

Nothing that a model wrote is evaluated as code: sympy's own parsers (`sympify`, `parse_expr`) call
`eval` on their text. `read` is a small grammar of its own that builds sympy's objects: numbers,
+ − · / ^ !, fractions, roots, a few functions and constants, single letters, equations (their right
side), percent, lists, sets, tuples and intervals. Sizes are bounded before anything is computed;
what still takes long is ended from outside: this runs in a process of its own (verifier.py).
"""

import json
import re
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy
from sympy import S

LONGEST = 500  # characters of an answer
MOST_DIGITS = 60
MOST_POWER = 200  # of a number
MOST_FACTORIAL = 50
DEEPEST = 40
MOST_MEMORY = 2 * 2**30  # bytes of addresses

_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?![\d])(?:\.\d+)?|\d+(?:\.\d*)?|\.\d+")
_NAME = re.compile(r"\\[A-Za-z]+|[A-Za-z]+")
_DROPPED = re.compile(
    r"\\(?:left|right|displaystyle|mathrm|mathbf|big|Big|quad|qquad)(?![A-Za-z])"
    r"|\\[,;:! ]|\$|\\\(|\\\)|\\\[|\\\]"
)
_TEXT = re.compile(r"\\(?:text|mbox|textbf)\s*\{([^{}]*)\}")
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sin": sympy.sin,
    "cos": sympy.cos,
    "tan": sympy.tan,
    "arcsin": sympy.asin,
    "arccos": sympy.acos,
    "arctan": sympy.atan,
    "ln": sympy.log,
    "log": sympy.log,
    "exp": sympy.exp,
    "sqrt": sympy.sqrt,
}
_CONSTANTS = {"pi": sympy.pi, "infty": sympy.oo, "e": sympy.E, "i": sympy.I, "emptyset": S.EmptySet}
_GREEK = {
    "alpha",
    "beta",
    "gamma",
    "delta",
    "theta",
    "lambda",
    "mu",
    "sigma",
    "phi",
    "omega",
}
_SIGNS = {
    "\u2212": "-",
    "×": "*",
    "·": "*",
    "÷": "/",
    "π": r"\pi ",
    "∞": r"\infty ",
    "√": r"\sqrt ",
}


class Unreadable(ValueError):
    """Not in the grammar, or too large."""


@dataclass(frozen=True, slots=True)
class Group:
    """Several values: `kind` is set, tuple, or an interval by its brackets."""

    kind: str
    values: tuple[Any, ...]


def same(given: str, right: str) -> bool:
    """Raises `Unreadable` where either is no answer that can be read."""
    one, percent = _read(given)
    two, wanted = _read(right)
    if _equal(one, two):
        return True
    # "50 %" is 0.5, and also the answer 50 to a question for per cent.
    return percent != wanted and _equal(_times(one, percent), _times(two, wanted))


def read(text: str) -> Any:
    """A sympy object or a `Group`."""
    return _read(text)[0]


def _read(text: str) -> tuple[Any, bool]:
    """(what it is, whether a sign of percent stands behind it)."""
    if len(text) > LONGEST:
        raise Unreadable(f"is longer than {LONGEST} characters")
    for sign, plain in _SIGNS.items():
        text = text.replace(sign, plain)
    text = _DROPPED.sub(" ", _TEXT.sub(" ", text)).strip().rstrip(".").strip()
    text = re.sub(r"\^\s*\{?\s*\\circ\s*\}?|°", " ", text)
    text = re.sub(r"\\[dt]frac(?![A-Za-z])", r"\\frac", text)
    percent = bool(re.search(r"\\?%\s*$", text))
    text = re.sub(r"\\?%\s*$", "", text).strip()
    if text.count("=") == 1 and not text.startswith("="):
        text = text.partition("=")[2]
    text = text.partition(r"\in ")[2] or text  # x ∈ [0, 1)
    found = _Parser(text).whole()
    return (_single(found) / 100 if percent else found), percent


def _single(value: Any) -> Any:
    if isinstance(value, Group):
        raise Unreadable("computes with several values at once")
    return value


def _times(value: Any, percent: bool) -> Any:
    return value * 100 if percent and not isinstance(value, Group) else value


def _equal(one: Any, two: Any) -> bool:
    if isinstance(one, Group) or isinstance(two, Group):
        if not isinstance(one, Group) or not isinstance(two, Group) or one.kind != two.kind:
            return False
        if one.kind == "set":
            return all(any(_equal(a, b) for b in two.values) for a in one.values) and all(
                any(_equal(a, b) for a in one.values) for b in two.values
            )
        return len(one.values) == len(two.values) and all(
            _equal(a, b) for a, b in zip(one.values, two.values, strict=True)
        )
    if one == two:
        return True
    if one.is_number and two.is_number and not (one.is_finite and two.is_finite):
        return False
    return bool(sympy.simplify(one - two) == 0)


class _Parser:
    """Recursive descent; every method leaves `_at` behind what it has read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def whole(self) -> Any:
        found = self._listed()
        if self._peek():
            raise Unreadable(f"cannot be read from {self._text[self._at :][:20]!r} on")
        return found

    def _listed(self) -> Any:
        """Values between commas without brackets are a set: solutions in any order."""
        values = self._values("")
        return values[0] if len(values) == 1 else Group("set", tuple(values))

    def _values(self, end: str) -> list[Any]:
        values = [*self._signed()]
        while self._peek() in (",", ";") or self._word("or") or self._word("and"):
            if self._peek() in (",", ";"):
                self._at += 1
            values += self._signed()
        if end and not self._take(end):
            raise Unreadable(f"lacks a closing {end}")
        return values

    def _signed(self) -> list[Any]:
        r"""One value, or two of a \pm before it."""
        self._skip()
        if self._text.startswith(r"\pm", self._at):
            self._at += 3
            value = _single(self._sum())
            return [value, -value]
        value = self._sum()
        self._skip()
        if self._text.startswith(r"\pm", self._at):
            self._at += 3
            other = _single(self._sum())
            return [_single(value) + other, value - other]
        return [value]

    def _sum(self) -> Any:
        self._depth += 1
        if self._depth > DEEPEST:
            raise Unreadable("is nested too deep")
        value = self._product()
        while (sign := self._peek()) in ("+", "-"):
            self._at += 1
            other = self._product()
            value = _single(value) + _single(other) * (1 if sign == "+" else -1)
        self._depth -= 1
        return value

    def _product(self) -> Any:
        value = self._factor()
        while True:
            sign = self._peek()
            if sign == "*" and not self._text.startswith("**", self._at):
                self._at += 1
                value = _single(value) * _single(self._factor())
            elif self._named("cdot") or self._named("times"):
                value = _single(value) * _single(self._factor())
            elif sign == "/" or self._named("div"):
                self._at += sign == "/"
                value = self._quotient(value, self._factor())
            elif self._begins_factor():
                value = _single(value) * _single(self._power())
            else:
                return value

    def _begins_factor(self) -> bool:
        """Whether a factor without a sign of multiplication follows: 2x, 2(x + 1), 2\\sqrt{3}."""
        if self._peek() in ("(",) or self._peek().isdigit():
            return not self._peek().isdigit()
        rest = self._text[self._at :]
        name = _NAME.match(rest)
        if not name or name[0] in (r"\pm", r"\cup", "or", "and"):
            return False
        return name[0].lstrip("\\") not in ("rbrace", "rangle", "cdot", "times", "div")

    def _factor(self) -> Any:
        sign = self._peek()
        if sign in ("+", "-"):
            self._at += 1
            value = self._factor()
            return -_single(value) if sign == "-" else value
        return self._power()

    def _power(self) -> Any:
        base = self._postfix()
        if self._peek() == "^" or self._text.startswith("**", self._at):
            self._at += 1 if self._peek() == "^" else 2
            power = self._braced() if self._peek() == "{" else self._factor()
            return self._raised(base, power)
        return base

    def _postfix(self) -> Any:
        value = self._atom()
        while self._peek() == "!":
            self._at += 1
            if not (_single(value).is_Integer and 0 <= value <= MOST_FACTORIAL):
                raise Unreadable(f"holds a factorial of what is no number up to {MOST_FACTORIAL}")
            value = sympy.factorial(value)
        return value

    def _atom(self) -> Any:
        sign = self._peek()
        if number := _NUMBER.match(self._text, self._at):
            self._at = number.end()
            digits = number[0].replace(",", "")
            if len(digits) > MOST_DIGITS:
                raise Unreadable(f"holds a number of more than {MOST_DIGITS} digits")
            return sympy.Rational(digits)
        if sign in ("(", "["):
            return self._bracketed(sign)
        if sign == "{":
            return self._braced()
        if self._text.startswith(r"\{", self._at):
            self._at += 2
            return Group("set", tuple(self._values(r"\}")))
        if sign == "|":
            self._at += 1
            value = self._sum()
            if not self._take("|"):
                raise Unreadable("lacks a closing |")
            return sympy.Abs(_single(value))
        name = _NAME.match(self._text, self._at)
        if not name:
            raise Unreadable(f"cannot be read at {self._text[self._at :][:20]!r}")
        self._at = name.end()
        return self._of_name(name[0])

    def _of_name(self, written: str) -> Any:
        name = written.lstrip("\\")
        if written == r"\frac":
            top = self._argument()
            return self._quotient(top, self._argument())
        if name == "sqrt":
            index = sympy.Integer(2)
            if written.startswith("\\") and self._peek() == "[":
                self._at += 1
                index = self._sum()
                if not self._take("]"):
                    raise Unreadable("lacks a closing ]")
            return self._raised(self._argument(), self._quotient(S.One, index))
        if name in _FUNCTIONS:
            return _FUNCTIONS[name](_single(self._argument()))
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        if name in _GREEK or len(name) == 1:
            return sympy.Symbol(name)
        if not written.startswith("\\") and len(name) <= 3 and name not in _WORDS:
            return sympy.Mul(*(sympy.Symbol(letter) for letter in name))  # xy is x · y
        raise Unreadable(f"holds the word {written!r}")

    def _bracketed(self, opening: str) -> Any:
        self._at += 1
        values = [*self._signed()]
        while self._peek() in (",", ";"):
            self._at += 1
            values += self._signed()
        closing = self._peek()
        if closing not in (")", "]"):
            raise Unreadable(f"lacks a bracket that closes {opening}")
        self._at += 1
        if len(values) == 1 and opening + closing in ("()", "[]"):
            return values[0]
        return Group(opening + closing, tuple(values))

    def _argument(self) -> Any:
        """Of a command: in braces or brackets, else one digit, letter or command."""
        sign = self._peek()
        if sign == "{":
            return self._braced()
        if sign == "(":
            return self._bracketed("(")
        if sign.isdigit():
            self._at += 1
            return sympy.Integer(sign)
        return self._atom()

    def _braced(self) -> Any:
        self._at += 1
        value = self._listed()
        if not self._take("}"):
            raise Unreadable("lacks a closing }")
        return value

    def _quotient(self, top: Any, bottom: Any) -> Any:
        if _single(bottom) == 0:
            raise Unreadable("divides by 0")
        return _single(top) / bottom

    def _raised(self, base: Any, power: Any) -> Any:
        """Sizes are judged before sympy computes the power."""
        base, power = _single(base), _single(power)
        if power.is_number and not (power.is_finite and bool(abs(power) <= MOST_POWER)):
            raise Unreadable(f"holds a power over {MOST_POWER}")
        if base == 0 and power.is_number and not bool(power > 0):
            raise Unreadable("divides by 0")
        return base**power

    def _peek(self) -> str:
        self._skip()
        return self._text[self._at : self._at + 1]

    def _skip(self) -> None:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1

    def _take(self, sign: str) -> bool:
        self._skip()
        if self._text.startswith(sign, self._at):
            self._at += len(sign)
            return True
        return False

    def _named(self, name: str) -> bool:
        return self._command("\\" + name)

    def _word(self, name: str) -> bool:
        return self._command(name)

    def _command(self, written: str) -> bool:
        self._skip()
        found = _NAME.match(self._text, self._at)
        if found and found[0] == written:
            self._at = found.end()
            return True
        return False


_WORDS = {"the", "is", "are", "yes", "no", "not", "and", "or", "so", "it", "of", "to", "in", "cm"}


def main() -> None:
    """A line when it is ready; then for a line [given, right] one {"same": …} or
    {"unreadable": …}."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        given, right = json.loads(line)
        try:
            told: dict[str, Any] = {"same": same(given, right)}
        except (Unreadable, RecursionError) as error:
            told = {"unreadable": str(error)}
        except Exception as error:  # of sympy, about an expression that it cannot compare
            told = {"unreadable": f"{type(error).__name__}: {error}"[:200]}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
