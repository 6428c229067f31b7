"""Two responses to a prompt, and the slots to vote on them.

Races are settled here, by constraints: a slot belongs to one annotator, an annotator meets a
comparison once (but for hidden repeats), a slot has one current vote. That a comparison has no more
places for votes than its overlap is a trigger (migration 0004).

Foreign keys have no index of their own where the first column of another one serves: imports write
tens of thousands of these rows.
"""

from django.db import models
from django.db.models import F, Q

from apps.accounts.models import Project, User
from apps.common.models import Stamped
from apps.labeling.models.choices import Choice
from apps.labeling.models.content import Prompt, Response


class Comparison(Stamped):
    """Two responses to one prompt, in a canonical order that no annotator sees."""

    class State(models.TextChoices):
        OPEN = "open", "open"
        DECIDED = "decided", "decided"
        CONTESTED = "contested", "contested"
        REVIEW = "review", "needs review"
        DROPPED = "dropped", "dropped"

    class Stratum(models.TextChoices):
        RANDOM = "random", "random"
        PRIORITY = "priority", "priority"
        GOLD = "gold", "gold"
        PRACTICE = "practice", "qualification"  # never in the queue

    project = models.ForeignKey(
        Project, on_delete=models.CASCADE, related_name="comparisons", db_index=False
    )
    prompt = models.ForeignKey(Prompt, on_delete=models.CASCADE, related_name="comparisons")
    response_a = models.ForeignKey(Response, on_delete=models.PROTECT, related_name="+")
    response_b = models.ForeignKey(Response, on_delete=models.PROTECT, related_name="+")
    external_id = models.CharField(max_length=120, blank=True)
    batch = models.CharField(max_length=80, blank=True, help_text="the import or run it came with")
    state = models.CharField(max_length=9, choices=State.choices, default=State.OPEN)
    stratum = models.CharField(max_length=8, choices=Stratum.choices, default=Stratum.RANDOM)
    priority = models.FloatField(default=0.0)
    shuffle = models.FloatField(
        default=0.0, help_text="a seeded draw in [0, 1): the order of the random stratum"
    )
    overlap = models.PositiveSmallIntegerField(default=3)
    gold = models.CharField(max_length=8, blank=True, choices=Choice.choices)
    gold_explanation = models.TextField(
        blank=True, default="", db_default="", help_text="why, for whoever is learning"
    )
    review_reason = models.CharField(
        max_length=300,
        blank=True,
        default="",
        db_default="",
        help_text="why a person must look at it",
    )
    n_votes = models.PositiveIntegerField(default=0, help_text="current votes, kept by vote_cast")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=~Q(response_a=F("response_b")), name="comparison_of_two_responses"
            ),
            models.UniqueConstraint(
                fields=["project", "external_id"],
                condition=~Q(external_id=""),
                name="comparison_external_id_once",
            ),
        ]
        indexes = [
            models.Index(fields=["project", "state", "-priority"], name="comparison_by_state"),
            models.Index(
                fields=["project", "stratum", "shuffle"],
                condition=Q(stratum__in=["gold", "practice"]),
                name="comparison_controls",
            ),
        ]

    def __str__(self) -> str:
        return f"comparison {self.pk}"


class Slot(models.Model):
    """The right to cast one vote on one comparison.

    A slot carries its project and its place in the queue, so that handing out the next one reads
    one index and locks one row (`FOR UPDATE SKIP LOCKED`).
    """

    class Kind(models.TextChoices):
        REGULAR = "regular", "regular"
        GOLD = "gold", "gold"
        REPEAT = "repeat", "hidden repeat"
        AUDIT = "audit", "audit re-vote"
        # voted on before the comparison was sent to re-annotation: kept, decides nothing
        FORMER = "former", "earlier round"

    class State(models.TextChoices):
        FREE = "free", "free"
        LEASED = "leased", "leased"
        DONE = "done", "voted"
        WITHDRAWN = "withdrawn", "withdrawn"

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+", db_index=False)
    comparison = models.ForeignKey(
        Comparison, on_delete=models.CASCADE, related_name="slots", db_index=False
    )
    position = models.PositiveSmallIntegerField()
    kind = models.CharField(max_length=8, choices=Kind.choices, default=Kind.REGULAR)
    state = models.CharField(max_length=9, choices=State.choices, default=State.FREE)
    priority = models.FloatField(default=0.0)
    shuffle = models.FloatField(default=0.0)
    annotator = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    topic = models.CharField(max_length=200, blank=True, default="", db_default="")
    language = models.CharField(max_length=12, blank=True, default="", db_default="")
    measures = models.ForeignKey(
        "Vote",
        db_index=False,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="measured_by",
        help_text="the vote that a hidden repeat or an audit re-vote is compared with",
    )
    leased_until = models.DateTimeField(null=True, blank=True)
    leased_at = models.DateTimeField(null=True, blank=True)
    left_is = models.CharField(
        max_length=1,
        blank=True,
        choices=[("a", "A"), ("b", "B")],
        help_text="which response is shown left; drawn once per annotator and comparison",
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["comparison", "position"], name="slot_position_once"),
            models.UniqueConstraint(
                fields=["comparison", "annotator"],
                condition=Q(annotator__isnull=False) & ~Q(kind__in=["repeat", "former"]),
                name="slot_annotator_meets_comparison_once",
            ),
            models.UniqueConstraint(
                fields=["comparison", "annotator"],
                condition=Q(annotator__isnull=False) & Q(kind="repeat"),
                name="slot_repeated_once",
            ),
            models.CheckConstraint(
                condition=Q(kind__in=["repeat", "audit"], measures__isnull=False)
                | Q(kind__in=["regular", "gold", "former"], measures__isnull=True),
                name="slot_measures_a_vote",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["free", "withdrawn"], annotator__isnull=True)
                | Q(state__in=["leased", "done"], annotator__isnull=False),
                name="slot_held_means_annotator",
            ),
            models.CheckConstraint(
                condition=~Q(state="leased") | Q(leased_until__isnull=False),
                name="slot_lease_ends",
            ),
        ]
        indexes = [
            models.Index(
                fields=["project", "shuffle"],
                condition=Q(state="free"),
                name="slot_free_shuffled",
            ),
            models.Index(
                fields=["project", "-priority", "shuffle"],
                condition=Q(state="free", priority__gt=0),
                name="slot_free_prioritised",
            ),
            models.Index(
                fields=["project", "leased_until"],
                condition=Q(state="leased"),
                name="slot_leases_ending",
            ),
            models.Index(
                fields=["annotator", "project"],
                condition=Q(state="leased"),
                name="slot_held_by",
            ),
            models.Index(
                fields=["project", "topic", "shuffle"],
                condition=Q(state="free") & ~Q(topic=""),
                name="slot_free_by_topic",
            ),
            models.Index(
                fields=["measures"],
                condition=Q(measures__isnull=False),
                name="slot_measuring",
            ),
            # The few whose votes decide nothing: statistics leave them out without a join.
            models.Index(
                fields=["project"],
                condition=Q(kind__in=["repeat", "audit", "former"]),
                name="slot_undeciding",
            ),
        ]

    def __str__(self) -> str:
        return f"slot {self.position} of comparison {self.comparison_id}"


class Skip(models.Model):
    """An annotator passed on a comparison; it goes to others."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    comparison = models.ForeignKey(Comparison, on_delete=models.CASCADE, related_name="skips")
    annotator = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    reason = models.CharField(max_length=300, blank=True)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["comparison", "annotator"], name="skip_once")
        ]

    def __str__(self) -> str:
        return f"skip of {self.comparison_id}"
