"""Rules and hard constraints on text: what they earn, what they cost, and what they block.

The value of a response is Σ over the rules of `score` where it keeps the rule and of −`penalty`
where it breaks it. A hard constraint (on_violation: block) without a penalty leaves the value as it
is and withholds the response: it must give no gradient. With a penalty the penalty is taught.
"""

from collections.abc import Sequence

from workers.config.parsing import read
from workers.config.rewards import BLOCK, REVIEW, Bounds, RuleSettings
from workers.data.snapshot import Messages
from workers.rewards.expressions import Expression
from workers.rewards.reading import boxed, json_in, phrase_pattern, plain
from workers.rewards.source import Scores


class Rule:
    """One rule, ready to be asked."""

    def __init__(self, settings: RuleSettings, *, where: str = "") -> None:
        self.settings = settings
        self.name = settings.name
        self._test = getattr(self, f"_{settings.test}")
        fold = settings.ignore_case is not False  # phrases, unless told
        phrases = settings.contains or settings.contains_any or settings.lacks or settings.sections
        self._phrases = [(text, phrase_pattern(text, ignore_case=fold)) for text in phrases]
        pattern = settings.matches or settings.matches_not
        self._expression = Expression(
            pattern, where=f"{where}{settings.test}", ignore_case=bool(settings.ignore_case)
        )
        bounds = settings.words or settings.characters
        self._bounds = read(Bounds, bounds)[0] if bounds else None

    def broken(self, text: str) -> str | None:
        """How the text breaks the rule, in words; None if it keeps it."""
        told: str | None = self._test(text)
        return told

    def _contains(self, text: str) -> str | None:
        text = plain(text)
        absent = [phrase for phrase, pattern in self._phrases if not pattern.search(text)]
        return f"does not say “{absent[0]}”" if absent else None

    def _contains_any(self, text: str) -> str | None:
        text = plain(text)
        if any(pattern.search(text) for _, pattern in self._phrases):
            return None
        return "says none of " + ", ".join(f"“{phrase}”" for phrase, _ in self._phrases)

    def _lacks(self, text: str) -> str | None:
        text = plain(text)
        said = [phrase for phrase, pattern in self._phrases if pattern.search(text)]
        return f"says “{said[0]}”" if said else None

    def _matches(self, text: str) -> str | None:
        return None if self._expression.search(text) else "does not match the expression"

    def _matches_not(self, text: str) -> str | None:
        found = self._expression.search(text)
        return f"matches the expression with “{found.group()[:80]}”" if found else None

    def _words(self, text: str) -> str | None:
        return self._beyond(len(text.split()), "words")

    def _characters(self, text: str) -> str | None:
        return self._beyond(len(text), "characters")

    def _beyond(self, count: int, unit: str) -> str | None:
        least, most = self._bounds.least, self._bounds.most  # type: ignore[union-attr]
        if least is not None and count < least:
            return f"has {count:,} {unit}, under {least:,}"
        if most is not None and count > most:
            return f"has {count:,} {unit}, over {most:,}"
        return None

    def _format(self, text: str) -> str | None:
        if self.settings.format == "json":
            return None if json_in(text)[0] else "is no JSON"
        if self.settings.format == "boxed":
            found = boxed(text)
            if len(found) != 1:
                return f"holds {len(found)} boxed answers, not one"
            return None if found[0] else "holds an empty box"
        return self._in_order(text)

    def _in_order(self, text: str) -> str | None:
        """Each heading on a line of its own, marks of Markdown aside, after the one before it."""
        lines = [line.strip(" \t#*_:") for line in plain(text).splitlines()]
        at = 0
        for heading, pattern in self._phrases:
            place = next((i for i in range(at, len(lines)) if pattern.fullmatch(lines[i])), None)
            if place is None:
                return f"lacks the section “{heading}” in its place"
            at = place + 1
        return None


class RulesReward:
    """A set of rules as a source of rewards; `parts` hold what each rule earned or cost."""

    def __init__(self, rules: Sequence[RuleSettings], *, where: str = "reward") -> None:
        self.rules = [
            Rule(settings, where=f"{where}.rules[{i}].") for i, settings in enumerate(rules)
        ]

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        parts: dict[str, list[float]] = {rule.name: [] for rule in self.rules}
        reviews: list[str | None] = []
        blocked, withheld = [], []
        for text in responses:
            told = {rule.name: rule.broken(text) for rule in self.rules}
            for rule in self.rules:
                kept = told[rule.name] is None
                parts[rule.name].append(rule.settings.score if kept else -rule.settings.cost)
            broken = [rule for rule in self.rules if told[rule.name] is not None]
            hard = [rule for rule in broken if rule.settings.on_violation == BLOCK]
            shown = [rule for rule in broken if rule.settings.on_violation in (BLOCK, REVIEW)]
            reasons = [f"rule {rule.name}: the answer {told[rule.name]}" for rule in shown]
            reviews.append(". ".join(reasons) or None)
            blocked.append(bool(hard))
            withheld.append(any(rule.settings.withholds for rule in hard))
        values = [sum(row) for row in zip(*parts.values(), strict=True)]
        return Scores(values, parts, reviews=reviews, blocked=blocked, withheld=withheld)
