"""Answers that say which model wrote them: found at import, so that comparing stays blind.

A pattern, not a proof: it looks for a model or maker named where the text speaks of its own author.
A text about a model ("GPT-4 was released in 2023") is left alone. What it misses annotators flag on
the screen ("Names its model").
"""

import re
import unicodedata

# Names that mean little else, and names that are also people, animals or ordinary words.
_PLAIN = (
    r"chat\s?gpt|gpt[\s-]?[2-9][\w.]*|open\s?ai|anthropic|deepmind|google(?:\s(?:ai|deepmind))?"
    r"|llama[\s-]?\d[\w.]*|meta(?:\sai)?|microsoft|mistral(?:\s?ai)?|mixtral|qwen|tongyi"
    r"|alibaba(?:\scloud)?|deepseek|xai|vicuna|baidu|cohere|moonshot|nemotron|stablelm"
)
_ALSO_WORDS = r"claude|gemini|bard|llama|grok|copilot|palm|lamda|falcon|bloomz?|kimi|command\s?r"
_ANY = rf"(?:{_PLAIN}|{_ALSO_WORDS})"
_BETWEEN = (
    r"(?:(?:an?|the|your|ai|large|language|model|assistant|chatbot|bot|virtual|helpful|friendly"
    r"|called|named|known|as|version|of)\s+){0,7}"
)
_PATTERN = re.compile(
    "|".join(
        (
            rf"\b(?:i\s?am|i'm|my\s+name\s+is|call\s+me)\s+{_BETWEEN}{_ANY}\b",
            rf"(?:^|[.!?,;:\n]\s*)(?:this\s+is|as)\s+{_ANY}\b",
            r"\b(?:i|me|as\s+an?\s+(?:ai|large|language|virtual))\b[^.!?\n]{0,60}"
            r"\b(?:trained|developed|created|made|built|designed)\s+by\s+(?:[\w-]+\s+){0,3}?"
            rf"(?:{_PLAIN})\b",
        )
    ),
    re.IGNORECASE,
)


# What every text that the pattern fits holds once all but its letters and digits is gone: a name,
# and a turn of phrase about oneself or a word right before a name. Found as substrings, which takes
# a tenth of the pattern's time; the pattern then runs on few texts.
_STEMS = (
    b"gpt",
    b"openai",
    b"anthropic",
    b"deepmind",
    b"google",
    b"llama",
    b"meta",
    b"microsoft",
    b"mistral",
    b"mixtral",
    b"qwen",
    b"tongyi",
    b"alibaba",
    b"deepseek",
    b"xai",
    b"vicuna",
    b"baidu",
    b"cohere",
    b"moonshot",
    b"nemotron",
    b"stablelm",
    b"claude",
    b"gemini",
    b"bard",
    b"grok",
    b"copilot",
    b"palm",
    b"lamda",
    b"falcon",
    b"bloom",
    b"kimi",
    b"commandr",
)
_AS_NAME = re.compile(rb"(?:as|thisis)(?:chat|" + b"|".join(_STEMS) + rb")")
_OF_ITSELF = (b"iam", b"nameis", b"callme", b"edby", b"madeby", b"builtby")
_SIGNS = bytes(code for code in range(256) if code > 127 or not chr(code).isalnum())


def self_naming(text: str, model: str = "") -> str:
    """The words by which a text names its author, or "".

    model: what is known to have written it; its own name counts wherever it stands.
    """
    folded = text
    if not text.isascii():
        folded = unicodedata.normalize("NFKC", text).replace("’", "'").replace("ı", "i")
    for start in range(0, len(folded), _PIECE):
        end = start + _PIECE + _LONGEST_NAMING
        if _may_name_itself(folded[start:end].lower()) and (
            found := _PATTERN.search(folded, start, end)
        ):
            return found[0].strip(" .!?,;:\n")
    if len(model) >= 4 and model.lower() in folded.lower():
        named = re.search(rf"(?<!\w){re.escape(model)}(?!\w)", folded, re.IGNORECASE)
        if named:
            return model
    return ""


# Long texts in pieces, of which few hold a word of the pattern.
_PIECE = 20_000
_LONGEST_NAMING = 300


def _may_name_itself(lowered: str) -> bool:
    letters = lowered.encode("utf-8", "replace").translate(None, _SIGNS)
    if "i'm" not in lowered:
        for words in _OF_ITSELF:
            if words in letters:
                break
        else:
            return _AS_NAME.search(letters) is not None
    return any(stem in letters for stem in _STEMS)
