"""The grammar of a `reward` as data, for a form that is made from it. No torch.

`grammar` lists every source with its fields; what is allowed is `workers.config.rewards` alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from workers.config.parsing import SettingField, setting_fields
from workers.config.rewards import DEEPEST, SOURCES, TESTS, Bounds, PartSettings, RuleSettings

TITLES = {
    "model": "Reward model",
    "rules": "Rules and hard constraints",
    "verifier": "Verifier",
    "http": "HTTP service",
    "function": "Python function",
    "sum": "Weighted sum of several",
    "token_count": "Count of a word (for tests)",
}
# Fields that hold settings of their own: (what an entry of theirs is called, its class).
_ENTRIES: dict[str, tuple[str, type]] = {
    "rules": ("Rule", RuleSettings),
    "parts": ("Part", PartSettings),
    "words": ("", Bounds),
    "characters": ("", Bounds),
}
# Fields that a form shows at once; the others wait behind "More fields" while they are not set.
_MAIN: dict[str, tuple[str, ...]] = {
    "model": ("aggregate", "lambda"),
    "rules": ("rules",),
    "verifier": ("check", "take", "score", "wrong", "missing"),
    "http": ("url", "version", "token_env"),
    "function": ("name", "options"),
    "sum": ("parts",),
    "token_count": ("token", "cap"),
    "Rule": ("name", "score", "penalty", "on_violation"),
    "Part": ("name", "weight", "source"),
}
# Fields that mean something only where another one has one of these values.
_ONLY_WITH: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {
    "verifier": {
        "marker": ("take", ("after",)),
        "pattern": ("take", ("match",)),
        "tolerance": ("check", ("number", "code")),
        "relative_tolerance": ("check", ("number", "code")),
        "shape": ("check", ("shape",)),
        "partial": ("check", ("order", "code")),
        "seconds": ("check", ("code",)),
        "memory_mb": ("check", ("code",)),
    },
    "Rule": {"sections": ("format", ("sections",))},
}
_ONE_OF = {"Rule": TESTS}  # exactly one of these is given


def grammar(functions: Sequence[str] = ()) -> dict[str, Any]:
    """{deepest: sums within sums, sources: [{type, title, about, one_of, fields}]}, plain JSON.

    A field: name, kind (int, float, str, bool, choice, texts, object, entry, entries, source),
    doc, unit, default, optional, choices, main, only_with ([field, values] or null), entry (the
    group of fields of an entry: title, about, one_of, fields). `functions`: the names of those
    that are known to be installed, to choose from.
    """
    found = [_group(name, title, SOURCES[name]) for name, title in TITLES.items()]
    for field in next(one for one in found if one["type"] == "function")["fields"]:
        if field["name"] == "name":
            known = ", ".join(functions) or "none"
            field |= {
                "kind": "choice" if functions else "str",
                "choices": list(functions),
                "default": None,
                "doc": f"{field['doc']} Known to be installed: {known}.",
            }
    return {"deepest": DEEPEST, "sources": found}


def _group(name: str, title: str, cls: type) -> dict[str, Any]:
    return {
        "type": name,
        "title": title,
        "about": (cls.__doc__ or "").strip(),
        "one_of": list(_ONE_OF.get(name, ())),
        "fields": [_field(name, one) for one in setting_fields(cls)],
    }


def _field(group: str, one: SettingField) -> dict[str, Any]:
    kind, entry = one.type, None
    if one.name in _ENTRIES:
        title, cls = _ENTRIES[one.name]
        kind, entry = ("entries" if title else "entry"), _group(title, title or one.name, cls)
    elif one.name == "source":
        kind = "source"
    elif one.option.choices:
        kind = "choice"
    elif kind == "list":
        kind = "texts"
    only: tuple[str, tuple[str, ...]] | None = _ONLY_WITH.get(group, {}).get(one.name)
    default = one.default
    if isinstance(default, Mapping | tuple):  # () and {}: nothing is set
        default = None
    return {
        "name": one.name,
        "kind": kind,
        "doc": one.option.doc,
        "unit": one.option.unit,
        "default": default,
        "optional": one.optional,
        "choices": list(one.option.choices),
        "main": one.name in _MAIN.get(group, (one.name,)) or only is not None,
        "only_with": [only[0], list(only[1])] if only else None,
        "entry": entry,
    }
