"""What looks like personal data or a secret in a text: warned about at import, never blocked.

Patterns with a check where there is one (IBAN: mod 97; cards: Luhn and issuer; SSN: ranges that are
issued; addresses: public ones only), so that a warning is worth reading. Reserved examples
(example.org, 555-01xx, documentation addresses) are left alone. Names, postal addresses and other
free-form data are not found: this is a net with known holes, not a proof of absence.

Excerpts are masked: a warning must not carry what it warns of.
"""

import ipaddress
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

KINDS = {
    "email": "an e-mail address",
    "phone": "a phone number",
    "iban": "a bank account (IBAN)",
    "card": "a card number",
    "ssn": "a US social security number",
    "ip": "an IP address",
    "secret": "a key or token",
}
# RFC 2606 and RFC 6761: names that belong to nobody.
_RESERVED = re.compile(
    r"(?:^|[@.])(?:example\.(?:com|net|org|edu)|[\w-]+\.(?:example|test|invalid|localhost))$",
    re.IGNORECASE,
)
_EMAIL = re.compile(
    r"(?<![\w.+-])[\w.+-]{1,64}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,24}(?![\w@-])"
)
# A country code, or the North American form; bare digits are far more often something else.
_PHONE = re.compile(
    r"(?<![\w+.-])(?:\+[1-9]\d{0,2}(?:[ .-]?\(?\d{1,4}\)?){2,5}(?:[ .-]?\d{2,4})"
    r"|\(\d{3}\) ?\d{3}-\d{4}|\d{3}-\d{3}-\d{4})(?![\w-]|\.\d)"
)
_FICTIONAL = re.compile(r"555\D?01\d\d$")
_IBAN = re.compile(r"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)")
_CARD = re.compile(
    r"(?<![\w.,-])(?:\d{4}[ -]){3}\d{1,4}(?![\w-])|(?<![\w.,-])\d{13,16}(?!\w)"
    r"|(?<![\w.,-])3[47]\d{2}[ -]\d{6}[ -]\d{5}(?!\w)"
)
_ISSUERS = re.compile(
    r"4(?:\d{12}|\d{15})|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}"
    r"|3[47]\d{13}|6(?:011|5\d\d)\d{12}"
)
_SSN = re.compile(r"(?<![\w-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\w-])")
_IPV4 = re.compile(r"(?<![\w.-])(?:\d{1,3}\.){3}\d{1,3}(?![\w-]|\.\d)")
_VERSION = re.compile(r"(?:version|release|build|ver\.?|v)\s*$", re.IGNORECASE)
_IPV6 = re.compile(r"(?<![\w:.])(?:[0-9a-fA-F]{1,4}:){2,7}:?[0-9a-fA-F]{1,4}(?![\w:])")
_SECRET = re.compile(
    r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----"
    r"|(?<![A-Za-z0-9])(?:AKIA|ASIA)[0-9A-Z]{16}(?![A-Za-z0-9])"
    r"|(?<![A-Za-z0-9])gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{40,}"
    r"|(?<![A-Za-z0-9-])sk-(?:proj-|ant-)?[A-Za-z0-9_-]{24,}|[rs]k_live_[A-Za-z0-9]{16,}"
    r"|xox[abprs]-[A-Za-z0-9-]{16,}|AIza[0-9A-Za-z_-]{35}|glpat-[A-Za-z0-9_-]{20}"
    r"|(?<![A-Za-z0-9])hf_[A-Za-z0-9]{30,}"
    r"|eyJ[A-Za-z0-9_-]{16,}\.eyJ[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"
)
# Every secret holds one of these; most texts hold none.
_SECRET_MARKS = (
    "PRIVATE KEY",
    "AKIA",
    "ASIA",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "k_live_",
    "hf_",
    "sk-",
    "xox",
    "AIza",
    "glpat-",
    "eyJ",
)
# Seven digits with little between them, or an address: without either there is no number to check.
_NUMBERS = re.compile(r"[0-9](?:(?:[ ().-]{0,2}[0-9]){6}|\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9])")
_LONGEST_NUMBER = 60  # characters of a match, its blanks with it, and what stands around it


Check = Callable[[re.Match[str]], bool]


@dataclass(frozen=True, slots=True)
class Personal:
    """kind: a key of KINDS. excerpt: the find with its middle hidden."""

    kind: str
    excerpt: str

    @property
    def words(self) -> str:
        return f"holds what looks like {KINDS[self.kind]}: {self.excerpt}"


def personal_data(text: str) -> list[Personal]:
    """The first find of each kind. Cheap where a text holds no long number and no @."""
    found = []
    if "@" in text and (match := _first(_EMAIL, text, _is_someones)):
        found.append(Personal("email", _masked_address(match)))
    if _NUMBERS.search(text):
        found += _numbers(text)
    if ("::" in text or text.count(":") >= 7) and (match := _first(_IPV6, text, _is_public)):
        found.append(Personal("ip", _masked(match[0])))
    for mark in _SECRET_MARKS:  # a plain loop: this runs on every text
        if mark in text and (match := _secret_at(mark, text)):
            found.append(Personal("secret", _masked(match[0])))
            break
    return found


def _secret_at(mark: str, text: str) -> re.Match[str] | None:
    """A secret with this mark in it, which stands near its beginning."""
    most = 4_000 if mark == "eyJ" else 120  # characters that say that it is one
    at = text.find(mark)
    while at >= 0:
        if match := _SECRET.search(text, max(0, at - 60), at + most):
            return match
        at = text.find(mark, at + 1)
    return None


def scrubbed(text: str) -> tuple[str, int]:
    """The text with every find replaced by its kind in brackets, and how many there were."""
    found = 0
    for kind, pattern, is_real in _EVERY:

        def hidden(match: re.Match[str], kind: str = kind, is_real: Check = is_real) -> str:
            nonlocal found
            if not is_real(match):
                return match[0]
            found += 1
            return f"[{KINDS[kind].partition(' ')[2]}]"

        text = pattern.sub(hidden, text)
    return text, found


def _numbers(text: str) -> list[Personal]:
    found: list[Personal] = []
    open_kinds = list(_NUMBER_KINDS)
    for begin, end in _around_numbers(text):
        for one in list(open_kinds):
            kind, pattern, is_real = one
            if match := _first(pattern, text, is_real, begin, end):
                found.append(Personal(kind, _masked(match[0])))
                open_kinds.remove(one)
    order = [kind for kind, *_ in _NUMBER_KINDS]
    return sorted(found, key=lambda one: order.index(one.kind))


def _around_numbers(text: str) -> Iterator[tuple[int, int]]:
    """Stretches of the text outside of which there is no number to check: patterns that look at
    every character take as long as everything else about a long text."""
    begin = end = 0
    for match in _NUMBERS.finditer(text):
        if match.start() - _LONGEST_NUMBER > end:
            if end:
                yield begin, end
            begin = match.start() - _LONGEST_NUMBER
        end = match.end() + _LONGEST_NUMBER
    if end:
        yield max(begin, 0), min(end, len(text))


def _first(
    pattern: re.Pattern[str], text: str, is_real: Check, begin: int = 0, end: int = sys.maxsize
) -> re.Match[str] | None:
    return next((match for match in pattern.finditer(text, begin, end) if is_real(match)), None)


def _is_someones(match: re.Match[str]) -> bool:
    return _RESERVED.search(match[0].rpartition("@")[2]) is None


def _is_phone(match: re.Match[str]) -> bool:
    digits = re.sub(r"\D", "", match[0])
    return 8 <= len(digits) <= 15 and _FICTIONAL.search(match[0]) is None


def _is_iban(match: re.Match[str]) -> bool:
    """ISO 13616: moved round and read as a number, it leaves 1 when divided by 97."""
    text = match[0].replace(" ", "")
    if not 15 <= len(text) <= 34:
        return False
    return int("".join(str(int(c, 36)) for c in text[4:] + text[:4])) % 97 == 1


def _is_card(match: re.Match[str]) -> bool:
    """ISO/IEC 7812: an issuer's prefix and length, and a Luhn sum of 0 mod 10."""
    digits = re.sub(r"\D", "", match[0])
    if not _ISSUERS.fullmatch(digits):
        return False
    doubled = [int(d) * 2 for d in digits[-2::-2]]
    return (sum(map(int, digits[-1::-2])) + sum(d - 9 * (d > 9) for d in doubled)) % 10 == 0


def _is_public(match: re.Match[str]) -> bool:
    """An address of the public internet that is not a version number in disguise."""
    try:
        address = ipaddress.ip_address(match[0])
    except ValueError:
        return False
    before = match.string[max(0, match.start() - 12) : match.start()]
    return address.is_global and not address.is_multicast and _VERSION.search(before) is None


def _masked(text: str) -> str:
    """Two characters at either end; the length is kept up to twenty."""
    text = text.strip()
    return f"{text[:2]}{'•' * min(20, max(3, len(text) - 4))}{text[-2:]}"


def _masked_address(match: re.Match[str]) -> str:
    name, _, host = match[0].rpartition("@")
    return f"{name[:1]}•••@{host[:1]}•••.{host.rpartition('.')[2]}"


_NUMBER_KINDS: tuple[tuple[str, re.Pattern[str], Check], ...] = (
    ("iban", _IBAN, _is_iban),
    ("card", _CARD, _is_card),
    ("ssn", _SSN, lambda match: True),
    ("phone", _PHONE, _is_phone),
    ("ip", _IPV4, _is_public),
)
_EVERY = (
    ("secret", _SECRET, lambda match: True),
    ("email", _EMAIL, _is_someones),
    *_NUMBER_KINDS,
    ("ip", _IPV6, _is_public),
)
