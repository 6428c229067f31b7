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


# What stands in every text that the pattern could fit, as plain substrings: thirty times faster
# than the pattern, which therefore runs only on texts that have a name and speak of themselves.
_STEMS = (
    "gpt", "open", "anthropic", "deepmind", "google", "llama", "meta", "microsoft", "mistral",
    "mixtral", "qwen", "tongyi", "alibaba", "deepseek", "xai", "vicuna", "baidu", "cohere",
    "moonshot", "nemotron", "stablelm", "claude", "gemini", "bard", "grok", "copilot", "palm",
    "lamda", "falcon", "bloom", "kimi", "command",
)  # fmt: skip
_OF_ITSELF = ("i am ", "iam ", "i'm ", "name is ", "call me ", "ed by ", "made by ", "built by ")


def self_naming(text: str, model: str = "") -> str:
    """The words by which a text names its author, or "".

    model: what is known to have written it; its own name counts wherever it stands.
    """
    folded = text if text.isascii() else unicodedata.normalize("NFKC", text).replace("’", "'")
    lowered = folded.lower()
    stems = [stem for stem in _STEMS if stem in lowered]
    if stems and _speaks_of_itself(lowered, stems):
        found = _PATTERN.search(folded)
        if found:
            return found[0].strip(" .!?,;:\n")
    if len(model) >= 4 and model.lower() in lowered:
        named = re.search(rf"(?<!\w){re.escape(model)}(?!\w)", folded, re.IGNORECASE)
        if named:
            return model
    return ""


def _speaks_of_itself(lowered: str, stems: list[str]) -> bool:
    """Whether the text has a turn of phrase that the pattern asks for, blanks folded."""
    line = " ".join(lowered.split())
    if any(words in line for words in _OF_ITSELF):
        return True
    names = [*stems, "chat"]
    return any(f"as {name}" in line or f"this is {name}" in line for name in names)
