"""What people say about a comparison: comments, questions from the pair, and their answers."""

from django.db import models
from django.db.models import Q

from apps.accounts.models import Project, User
from apps.common.models import Stamped
from apps.labeling.models.tasks import Comparison


class Comment(Stamped):
    """One text in a comparison's thread, for reviewers and admins; whoever asked a question reads
    its answers too. `answers` names the question that an answer is to."""

    class Kind(models.TextChoices):
        COMMENT = "comment", "comment"
        QUESTION = "question", "question"
        ANSWER = "answer", "answer"

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+", db_index=False)
    comparison = models.ForeignKey(Comparison, on_delete=models.CASCADE, related_name="comments")
    author = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    kind = models.CharField(max_length=8, choices=Kind.choices, default=Kind.COMMENT)
    answers = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.CASCADE, related_name="replies"
    )
    text = models.TextField()
    edited_at = models.DateTimeField(null=True, blank=True)
    answered_at = models.DateTimeField(null=True, blank=True, help_text="of a question")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(kind="answer", answers__isnull=False)
                | (~Q(kind="answer") & Q(answers__isnull=True)),
                name="comment_answers_a_question",
            ),
            models.CheckConstraint(
                condition=Q(kind="question") | Q(answered_at__isnull=True),
                name="comment_only_questions_are_answered",
            ),
        ]
        indexes = [
            models.Index(
                fields=["project", "-id"],
                condition=Q(kind="question", answered_at__isnull=True),
                name="comment_open_question",
            ),
            models.Index(
                fields=["project", "author", "-id"],
                condition=Q(kind="question"),
                name="comment_question_by",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} on {self.comparison_id}"
