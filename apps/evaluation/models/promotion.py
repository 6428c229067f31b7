"""Which policy a stage names, and how it came to: requests with their evidence, decisions by two
people, and the history. Rows of all four tables are added and never changed: a trigger refuses it.
"""

from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from apps.accounts.models import Project, Role, User
from apps.common.models import short_id
from apps.training.models import Checkpoint

LONGEST_REASON = 1000


class Stage(models.TextChoices):
    """An alias of a project: each names one policy checkpoint at a time."""

    CANDIDATE = "candidate", "Candidate"
    STAGING = "staging", "Staging"
    PRODUCTION = "production", "Production"


class PromotionRequest(models.Model):
    """Somebody asks that a stage names a checkpoint. `evidence` keeps what spoke for it at that
    moment; `is_open`: nothing that the stage requires was red or missing."""

    id = models.CharField(primary_key=True, max_length=16, default=short_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="promotions")
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, related_name="promotions")
    stage = models.CharField(max_length=10, choices=Stage.choices)
    share = models.PositiveSmallIntegerField(
        default=100, help_text="per cent of the traffic; under 100 the model before keeps the rest"
    )
    reason = models.CharField(max_length=LONGEST_REASON, blank=True)
    evidence = models.JSONField(help_text="every line as it stood")
    evidence_sha256 = models.CharField(max_length=64)
    is_open = models.BooleanField()
    requested_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    requested_name = models.CharField(max_length=150)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-at"]
        constraints = [
            models.CheckConstraint(condition=Q(share__lte=100), name="promotion_share_in_percent"),
            # What decisions and signatures repeat of a request: a foreign key holds them to it.
            models.UniqueConstraint(
                fields=["id", "requested_by", "is_open"], name="promotion_request_repeated"
            ),
        ]
        indexes = [models.Index(fields=["project", "-at"], name="promotion_by_project")]

    def __str__(self) -> str:
        return f"{self.checkpoint_id} for {self.stage}"


class OverrideSignature(models.Model):
    """Somebody would promote although the gate is closed. Two of them, one an admin, do it."""

    id = models.BigAutoField(primary_key=True)
    request = models.ForeignKey(
        PromotionRequest, on_delete=models.PROTECT, related_name="signatures"
    )
    requested_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    is_open = models.BooleanField(default=False)
    by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    by_name = models.CharField(max_length=150)
    role = models.CharField(max_length=12, choices=Role.choices)
    reason = models.CharField(max_length=LONGEST_REASON)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["request", "by"], name="override_signed_once_each"),
            models.CheckConstraint(
                condition=~Q(by=F("requested_by")), name="override_signer_is_not_requester"
            ),
            models.CheckConstraint(
                condition=Q(role__in=["reviewer", "admin"]), name="override_signer_judges"
            ),
            models.CheckConstraint(condition=~Q(reason=""), name="override_signature_says_why"),
            models.CheckConstraint(condition=Q(is_open=False), name="override_of_a_closed_gate"),
        ]

    def __str__(self) -> str:
        return f"{self.by_name} for {self.request_id}"


class PromotionDecision(models.Model):
    """What became of a request: one row, so of two people at once one decides."""

    class Kind(models.TextChoices):
        APPROVED = "approved", "approved"
        OVERRIDDEN = "overridden", "approved by override"
        REJECTED = "rejected", "rejected"
        WITHDRAWN = "withdrawn", "withdrawn"

    request = models.OneToOneField(
        PromotionRequest, on_delete=models.PROTECT, related_name="decision"
    )
    requested_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    is_open = models.BooleanField()
    kind = models.CharField(max_length=10, choices=Kind.choices)
    decided_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    decided_name = models.CharField(max_length=150)
    decided_role = models.CharField(max_length=12, choices=Role.choices)
    seconded_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    seconded_name = models.CharField(max_length=150, blank=True)
    seconded_role = models.CharField(max_length=12, choices=Role.choices, blank=True)
    reason = models.CharField(max_length=LONGEST_REASON, blank=True)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(kind="withdrawn", decided_by=F("requested_by"))
                | (~Q(kind="withdrawn") & ~Q(decided_by=F("requested_by"))),
                name="promotion_approver_is_not_requester",
            ),
            models.CheckConstraint(
                condition=~Q(kind="approved") | Q(is_open=True, decided_role="admin"),
                name="promotion_approved_by_admin_through_open_gate",
            ),
            models.CheckConstraint(
                condition=~Q(kind="overridden")
                | (
                    Q(is_open=False, seconded_by__isnull=False)
                    & ~Q(seconded_by=F("decided_by"))
                    & ~Q(seconded_by=F("requested_by"))
                    & (Q(decided_role="admin") | Q(seconded_role="admin"))
                    & ~Q(reason="")
                ),
                name="promotion_overridden_by_two_others",
            ),
            models.CheckConstraint(
                condition=~Q(kind="rejected") | ~Q(reason=""), name="promotion_rejection_says_why"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind}: {self.request_id}"


class StageChange(models.Model):
    """From `at` on the stage names this checkpoint; the newest row of a stage is what counts.

    rest: what serves the rest of the traffic while `share` is under 100. back: the number of the
    change that *revert* returns to, null where there is none.
    """

    class Cause(models.TextChoices):
        PROMOTION = "promotion", "promoted"
        OVERRIDE = "override", "promoted by override"
        REVERT = "revert", "reverted"
        SHARE = "share", "share of traffic changed"

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="stage_changes")
    stage = models.CharField(max_length=10, choices=Stage.choices)
    number = models.PositiveIntegerField(help_text="1, 2, … in its stage: of two at once, one wins")
    checkpoint = models.ForeignKey(
        Checkpoint, on_delete=models.PROTECT, related_name="stage_changes"
    )
    share = models.PositiveSmallIntegerField(default=100)
    rest = models.ForeignKey(
        Checkpoint, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    cause = models.CharField(max_length=9, choices=Cause.choices)
    back = models.PositiveIntegerField(null=True, blank=True)
    request = models.ForeignKey(PromotionRequest, on_delete=models.PROTECT, related_name="changes")
    reason = models.CharField(max_length=LONGEST_REASON, blank=True)
    by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    by_name = models.CharField(max_length=150)
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "stage", "number"], name="stage_change_numbered"
            ),
            models.UniqueConstraint(
                fields=["request"],
                condition=Q(cause__in=["promotion", "override"]),
                name="stage_change_once_per_request",
            ),
            models.CheckConstraint(
                condition=Q(number__gte=1)
                & (Q(back__isnull=True) | Q(back__gte=1, back__lt=F("number"))),
                name="stage_change_goes_back",
            ),
            models.CheckConstraint(
                condition=Q(share=100, rest__isnull=True) | Q(share__lt=100),
                name="stage_change_shares_traffic",
            ),
            models.CheckConstraint(
                condition=Q(cause__in=["promotion", "override"]) | ~Q(reason=""),
                name="stage_change_says_why",
            ),
        ]
        indexes = [models.Index(fields=["project", "-at"], name="stage_change_by_project")]

    def __str__(self) -> str:
        return f"{self.stage} {self.number}: {self.checkpoint_id}"
