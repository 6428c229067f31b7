"""Practice pairs, and a person who goes through them."""

from collections.abc import Iterable

from apps.accounts.models import Project, User
from apps.labeling import services
from apps.labeling.models import Annotator, LabelingSettings, QualificationAttempt
from apps.labeling.services import qualification


def practice_make(project: Project, n: int = 4, **settings: object) -> None:
    """n practice pairs whose A is right, in a project that asks for three of them, two right."""
    asked = {
        "qualification_pairs": 3,
        "qualification_pass": 0.6,
        "qualification_attempts": 2,
        "qualification_cooldown_minutes": 60,
    }
    LabelingSettings.objects.update_or_create(project=project, defaults=asked | settings)
    services.comparisons_import(
        project=project,
        rows=[
            {
                "id": f"practice-{number}",
                "prompt": f"Practice {number}: what is 2 + 2?",
                "response_a": f"Four, in practice {number}.",
                "response_b": f"Five, in practice {number}.",
                "gold": "a",
                "stratum": "practice",
                "explanation": f"Because of arithmetic, says {number}.",
            }
            for number in range(1, n + 1)
        ],
    )


def right_side(answer: qualification.QualificationAnswer) -> str:
    return "left" if answer.left_is == answer.comparison.gold else "right"


def answer_all(project: Project, user: User, rights: Iterable[bool]) -> QualificationAttempt:
    """Start an attempt and answer its pairs rightly or wrongly, in order."""
    attempt = qualification.attempt_start(project=project, user=user)
    rows = attempt.answers.select_related("comparison").order_by("position")
    for row, right in zip(rows, rights, strict=True):
        side = right_side(row)
        other = "right" if side == "left" else "left"
        qualification.attempt_answer(
            project=project, user=user, answer=row.pk, side=side if right else other
        )
    attempt.refresh_from_db()
    return attempt


def qualified(project: Project, user: User) -> bool:
    return Annotator.objects.filter(project=project, user=user, qualified_at__isnull=False).exists()
