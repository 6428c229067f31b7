"""What people said of single answers: in the inbox, on a run's samples, on a blind audit sheet.

Rows of verdicts are added, never changed: the newest of a person about an answer counts, and
`withdrawn` takes their last one back. Verdicts are no votes: nothing that trains a model or
measures agreement reads them.
"""

from django.db import models
from django.db.models import Q

from apps.accounts.models import Project, User
from apps.common.models import Named, Stamped
from apps.training.models import Checkpoint, Run, Sample


class Claimed(models.Model):
    """A row that one person at a time has open. `claimed_by` counts until `claimed_until`."""

    claimed_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    claimed_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True


class FlaggedAnswer(Claimed, Stamped):
    """An answer that must be seen by a person: one entry of the inbox.

    Comes from the event `ReviewRequested` or a sample of the bucket flagged, whichever is there
    first; `sample` is the run's sample with the same text, where it kept one.
    """

    class Kind(models.TextChoices):
        DISAGREEMENT = "disagreement", "reward models disagree"
        RULE = "rule", "rule or phrase"
        GUARD = "guard", "flagged without a reason"
        PROBE = "probe", "check or probe"
        OTHER = "other", "other reason"

    class State(models.TextChoices):
        WAITING = "waiting", "waiting"
        JUDGED = "judged", "judged"
        CLOSED = "closed", "closed without a verdict"

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="flagged_answers")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="flagged_answers")
    sample = models.OneToOneField(
        Sample, null=True, blank=True, on_delete=models.CASCADE, related_name="flagged"
    )
    kind = models.CharField(max_length=12, choices=Kind.choices)
    reason = models.CharField(max_length=500, blank=True)
    step = models.BigIntegerField()
    prompt = models.JSONField()
    response = models.TextField()
    text_sha256 = models.CharField(max_length=64, help_text="of prompt and answer")
    state = models.CharField(max_length=7, choices=State.choices, default=State.WAITING)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "text_sha256"], name="flagged_answer_once_a_run")
        ]
        indexes = [
            models.Index(fields=["project", "state", "-id"], name="flagged_answer_inbox"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} at {self.step} of {self.run_id}"


class AuditSheet(Named):
    """Answers of a policy mixed with its baseline's, judged by people who do not know which is
    whose."""

    class State(models.TextChoices):
        OPEN = "open", "open"
        FINISHED = "finished", "finished"
        WITHDRAWN = "withdrawn", "withdrawn"

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="audit_sheets")
    checkpoint = models.ForeignKey(
        Checkpoint, on_delete=models.CASCADE, related_name="audit_sheets"
    )
    run = models.ForeignKey(
        Run,
        on_delete=models.CASCADE,
        related_name="audit_sheets",
        help_text="the run whose answers these are",
    )
    baseline = models.ForeignKey(
        Checkpoint, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    seed = models.BigIntegerField(help_text="draws the answers and their order")
    n_random = models.PositiveSmallIntegerField()
    n_extreme = models.PositiveSmallIntegerField(help_text="of the highest, and of the lowest")
    n_baseline = models.PositiveSmallIntegerField()
    people = models.PositiveSmallIntegerField(default=1, help_text="verdicts wanted per answer")
    n_answers = models.PositiveIntegerField(default=0, help_text="of the policy, to draw from")
    high_reward = models.FloatField(
        null=True, blank=True, help_text="the 0.9 quantile of all the policy's rewards"
    )
    is_whole = models.BooleanField(
        default=True, help_text="the random answers were drawn from all, not from the middle only"
    )
    state = models.CharField(max_length=9, choices=State.choices, default=State.OPEN)
    reason = models.CharField(max_length=500, blank=True, help_text="why it was withdrawn")
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    ended_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(state="open", ended_at__isnull=True)
                | Q(state__in=["finished", "withdrawn"], ended_at__isnull=False),
                name="audit_sheet_ended_has_time",
            ),
            models.CheckConstraint(
                condition=~Q(state="withdrawn") | ~Q(reason=""),
                name="audit_sheet_withdrawn_says_why",
            ),
            models.UniqueConstraint(
                fields=["checkpoint"], condition=Q(state="open"), name="audit_sheet_open_once"
            ),
        ]
        indexes = [
            models.Index(fields=["checkpoint", "-ended_at"], name="audit_sheet_of_policy"),
        ]

    def __str__(self) -> str:
        return f"audit sheet {self.pk}"


class SheetItem(Named, Claimed):
    """One answer of a sheet. Its id is drawn, so that nothing on the page tells whose it is."""

    class Source(models.TextChoices):
        POLICY = "policy", "policy"
        BASELINE = "baseline", "baseline"

    class Stratum(models.TextChoices):
        HIGH = "high", "highest rewards"
        LOW = "low", "lowest rewards"
        RANDOM = "random", "random"

    sheet = models.ForeignKey(AuditSheet, on_delete=models.CASCADE, related_name="items")
    place = models.PositiveSmallIntegerField(help_text="in the drawn order, from 1")
    source = models.CharField(max_length=8, choices=Source.choices)
    stratum = models.CharField(max_length=6, choices=Stratum.choices)
    prompt = models.JSONField()
    response = models.TextField(blank=True)
    reward = models.FloatField(null=True, blank=True)

    class Meta:
        ordering = ["sheet", "place"]
        constraints = [
            models.UniqueConstraint(fields=["sheet", "place"], name="sheet_item_place_once"),
            models.CheckConstraint(
                condition=Q(source="policy") | Q(stratum="random"),
                name="sheet_item_baseline_is_random",
            ),
        ]

    def __str__(self) -> str:
        return f"answer {self.place} of {self.sheet_id}"


class Verdict(models.Model):
    """What one person said of one answer at one time."""

    class Value(models.TextChoices):
        FINE = "fine", "fine"
        BAD = "bad", "bad"
        UNSAFE = "unsafe", "unsafe"
        WRONG_REWARD = "wrong_reward", "wrong reward"
        LABELING = "labeling", "sent to labeling"
        WITHDRAWN = "withdrawn", "withdrawn"

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="verdicts")
    sample = models.ForeignKey(
        Sample, null=True, blank=True, on_delete=models.CASCADE, related_name="verdicts"
    )
    flagged = models.ForeignKey(
        FlaggedAnswer, null=True, blank=True, on_delete=models.CASCADE, related_name="verdicts"
    )
    item = models.ForeignKey(
        SheetItem, null=True, blank=True, on_delete=models.CASCADE, related_name="verdicts"
    )
    value = models.CharField(max_length=12, choices=Value.choices)
    note = models.CharField(max_length=500, blank=True)
    by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    by_name = models.CharField(max_length=150, help_text="stays when the account goes")
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(sample__isnull=False, flagged__isnull=True, item__isnull=True)
                | Q(sample__isnull=True, flagged__isnull=False, item__isnull=True)
                | Q(sample__isnull=True, flagged__isnull=True, item__isnull=False),
                name="verdict_is_of_one_answer",
            ),
            models.CheckConstraint(
                condition=Q(item__isnull=True)
                | Q(value__in=["fine", "bad", "unsafe", "withdrawn"]),
                name="verdict_of_sheet_is_blind",
            ),
        ]
        indexes = [
            models.Index(fields=["project", "by", "-id"], name="verdict_by_person"),
        ]

    def __str__(self) -> str:
        return f"{self.value} by {self.by_name}"
