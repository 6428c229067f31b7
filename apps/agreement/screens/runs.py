"""Agreement on what people said about runs of agents, a row a question."""

from collections.abc import Sequence
from typing import Any

from django.utils.translation import gettext_lazy as _

from apps.agreement.selectors.runs import STEPS, WRONG_FROM, RunAgreement
from apps.labeling.services.answers import OUTCOME
from measures.estimate import Estimate
from workers.contract.reasons import reason_words

WORDS = {**OUTCOME, WRONG_FROM: _("First wrong step"), STEPS: _("Which of two steps is better")}


def rows(found: Sequence[RunAgreement]) -> list[dict[str, Any]]:
    return [
        {
            "words": WORDS[one.question],
            "percent": _share(one.percent.value),
            "percent_spread": _spread(one.percent, _share),
            "alpha": _number(one.alpha.value),
            "alpha_spread": _spread(one.alpha, _number),
            "n_items": one.n_items,
            "n_judged": one.percent.n_items,
            "n_comparisons": one.n_comparisons,
            "undefined": reason_words(
                one.alpha.undefined or one.percent.undefined or one.percent.no_interval
            ),
        }
        for one in found
    ]


def _share(value: float | None) -> str:
    return "—" if value is None else f"{100 * value:.0f} %"


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:.2f}"


def _spread(estimate: Estimate, words: Any) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    return f"{words(estimate.low)} to {words(estimate.high)}"
