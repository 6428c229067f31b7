"""What a guardrail is: a figure, a bound, how often it must be crossed, and what happens then."""

from dataclasses import dataclass

OFF, WARN, ADJUST, STOP = "off", "warn", "adjust", "stop"
ACTIONS = (OFF, WARN, ADJUST, STOP)

# The links of the diagnosis, from the outside in: a trouble further out explains those behind it.
LINKS = (
    "data",
    "evaluation",
    "reward",
    "policy",
    "critic",
    "exploration",
    "freshness",
    "numerics",
    "resources",
)

# How a rule's figure meets its threshold. What pages say of a limit begins with these words.
TESTS = {
    "level": "the figure itself",
    "scaled": "the figure over the size of another, 1 at least",
    "first": "the figure over its first value of the run",
    "floor": "the figure, against the higher of the threshold and a share of its first value",
    "window": "the mean over the last 1,000 answers, once there are 100",
    "spread": "the standard deviation over the last 1,000 answers, once there are 100",
    "jump": "the figure over the 95 % quantile of its last 50 looks",
    "break": "the distance from the run's own trend, in standard errors",
    "rise": "the figure over its lowest so far",
    "fall": "the share of the gain that is lost, while the optimised score rises",
    "flat": "the gain since the first looks, while the answers stay as varied",
    "uniform": "the variety over its first value, while the reward is high",
    "finite": "whether a loss, a gradient or a watched figure is NaN or infinite",
    "diagnosed": "whether the diagnosis names a link that broke first",
}


@dataclass(frozen=True, slots=True)
class Adjustment:
    """One setting that `adjust` changes: value × times + plus, kept between least and most."""

    setting: str
    times: float = 1.0
    plus: float = 0.0
    least: float | None = None
    most: float | None = None

    def apply(self, value: float) -> float:
        """The new value; a whole number stays one where the result is whole. A value that is
        already past a bound is left where it is."""
        changed = value * self.times + self.plus
        if self.least is not None:
            changed = max(changed, min(self.least, value))
        if self.most is not None:
            changed = min(changed, max(self.most, value))
        return int(changed) if isinstance(value, int) and changed == int(changed) else changed

    @property
    def words(self) -> str:
        done = f"× {self.times:g}" if self.times != 1.0 else ""
        if self.plus:
            done = f"{done} {'+' if self.plus > 0 else '−'} {abs(self.plus):g}".strip()
        bounds = [f"at least {self.least:g}"] if self.least is not None else []
        bounds += [f"at most {self.most:g}"] if self.most is not None else []
        return f"{self.setting} {done}" + (f" ({', '.join(bounds)})" if bounds else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRule:
    """One guardrail.

    `kinds` are the recipes it watches. `metric` is the figure it reads, `beside` others it needs;
    a look without one of them is no look. `test` (a key of TESTS) says how the figure meets
    `threshold` on the side `bound`, in `unit`. It alarms when `patience` = (k, n) are met: k of
    the last n looks crossed the bound; looks before `grace` are not judged. `share` and `least`
    are the test's second parameters: a share of the first value, and the smallest effect that
    counts. `actions` are those an engineer may choose, `action` the one without a choice.
    `severity` is of a warning; a stop is always critical.
    """

    name: str
    title: str
    kinds: tuple[str, ...]
    link: str
    metric: str
    bound: str  # above | below
    threshold: float
    unit: str
    test: str = "level"
    beside: tuple[str, ...] = ()
    share: float = 0.0
    least: float = 0.0
    patience: tuple[int, int] = (1, 1)
    grace: int = 0
    severity: str = "warning"  # info | warning | critical
    actions: tuple[str, ...] = (OFF, WARN, STOP)
    action: str = WARN
    adjustment: tuple[Adjustment, ...] = ()
    evidence_class: str = "trend"  # contract | probe | trend
    advice: str
    source: str

    @property
    def default_action(self) -> str:
        return self.action

    @property
    def has_limit(self) -> bool:
        """Whether there is a threshold that could be chosen, and not only an action."""
        return self.test not in ("finite", "diagnosed")

    @property
    def relative_to(self) -> str | None:
        """What the threshold is relative to, None where it is absolute."""
        return {
            "first": "first",
            "floor": "first",
            "uniform": "first",
            "flat": "first",
            "jump": "window",
            "break": "window",
            "rise": "best",
            "fall": "best",
        }.get(self.test)

    @property
    def adjustment_words(self) -> str:
        return ", ".join(change.words for change in self.adjustment)

    @property
    def patience_words(self) -> str:
        k, n = self.patience
        if n == 1:
            return "at once"
        return f"{k} looks in a row" if k == n else f"{k} of {n} looks"
