"""What annotators wrote about prompts: the reasons and texts beside their votes."""

from collections import defaultdict
from collections.abc import Collection

from django.db.models import F, Q, Window
from django.db.models.functions import Length, RowNumber

from apps.accounts.models import Project
from apps.labeling.models import Vote

MOST_WORDS = 4  # of one prompt; the longest texts say most


def words_about(*, project: Project, prompts: Collection[int]) -> dict[int, list[Vote]]:
    """Current votes with a text, a reason or a flag, by prompt; no word of who cast them."""
    said = (
        Vote.objects.filter(project=project, comparison__prompt__in=prompts, is_current=True)
        .filter(~Q(rationale="") | ~Q(reasons=[]) | ~Q(flags=[]))
        .annotate(prompt=F("comparison__prompt_id"))
        .annotate(
            place=Window(
                RowNumber(), partition_by="prompt", order_by=[Length("rationale").desc(), "-id"]
            )
        )
        .filter(place__lte=MOST_WORDS)
        .order_by("prompt", "place")
    )
    found: dict[int, list[Vote]] = defaultdict(list)
    for vote in said:
        found[vote.prompt].append(vote)
    return dict(found)
