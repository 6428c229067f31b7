"""Catalogues: read, written, and a language from right to left made of the German one."""

import ast
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from django.conf import settings
from django.test.utils import override_settings

GERMAN = Path(settings.BASE_DIR) / "locale" / "de" / "LC_MESSAGES"
MIRRORED = "he"  # Django knows that it is written from right to left
DOMAINS = ("django", "djangojs")
_LINE = re.compile(r'(?:(msgctxt|msgid_plural|msgid|msgstr)(?:\[\d\])? )?(".*")$')


@dataclass
class Message:
    fuzzy: bool = False
    msgctxt: str | None = None
    msgid: str = ""
    msgid_plural: str | None = None
    msgstr: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        """As a compiled catalogue has it."""
        context = "" if self.msgctxt is None else f"{self.msgctxt}\x04"
        return context + "\0".join(filter(None, (self.msgid, self.msgid_plural)))


def po_read(path: Path) -> list[Message]:
    """Every message; the first is the header."""
    found = []
    for block in path.read_text().strip().split("\n\n"):
        message, name = Message(), ""
        for line in block.splitlines():
            if line.startswith("#"):
                message.fuzzy |= "fuzzy" in line
                continue
            match = _LINE.match(line)
            assert match, line
            text = ast.literal_eval(match[2])
            if match[1] == "msgstr":
                name = "msgstr"
                message.msgstr.append(text)
            elif match[1]:
                name = match[1]
                setattr(message, name, text)
            elif name == "msgstr":
                message.msgstr[-1] += text
            else:
                setattr(message, name, getattr(message, name) + text)
        found.append(message)
    return found


def mo_read(path: Path) -> dict[str, str]:
    data = path.read_bytes()
    _, _, n, ids, texts = struct.unpack("<5I", data[:20])

    def strings(start: int) -> Iterator[str]:
        for number in range(n):
            length, at = struct.unpack("<2I", data[start + 8 * number : start + 8 * number + 8])
            yield data[at : at + length].decode()

    return dict(zip(strings(ids), strings(texts), strict=True))


def mo_write(path: Path, texts: dict[str, str]) -> None:
    pairs = sorted((key.encode(), text.encode()) for key, text in texts.items())
    table, body = [b"", b""], b""
    start = 28 + 16 * len(pairs)
    for side in (0, 1):
        for pair in pairs:
            table[side] += struct.pack("<2I", len(pair[side]), start + len(body))
            body += pair[side] + b"\0"
    head = struct.pack("<7I", 0x950412DE, 0, len(pairs), 28, 28 + 8 * len(pairs), 0, 0)
    path.write_bytes(head + table[0] + table[1] + body)


def mirrored(folder: Path) -> override_settings:
    """Settings with a language from right to left, in which every message stands in ⟦…⟧."""
    target = folder / MIRRORED / "LC_MESSAGES"
    target.mkdir(parents=True)
    for domain in DOMAINS:
        texts = {"": po_read(GERMAN / f"{domain}.po")[0].msgstr[0]}
        for message in po_read(GERMAN / f"{domain}.po")[1:]:
            forms = filter(None, (message.msgid, message.msgid_plural))
            texts[message.key] = "\0".join(f"⟦ש {text}⟧" for text in forms)
        mo_write(target / f"{domain}.mo", texts)
    languages = [("en", "English"), ("de", "Deutsch"), (MIRRORED, "עברית")]
    return override_settings(LOCALE_PATHS=[folder, GERMAN.parents[1]], LANGUAGES=languages)


def outside(text: str) -> str:
    """What stands outside all ⟦⟧: nobody has marked it."""
    depth, left = 0, []
    for letter in text:
        depth += {"⟦": 1, "⟧": -1}.get(letter, 0)
        if depth == 0 and letter != "⟧":
            left.append(letter)
    return "".join(left)
