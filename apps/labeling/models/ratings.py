"""Rating tasks: several responses to one prompt, each graded, or all of them ranked.

They stand beside comparisons and share nothing with them but prompts and responses. Races are
settled by constraints, as for pairs: a task has `overlap` slots and no more (a trigger, migration
0006), a person meets it once, a slot has one current rating, a submit counts once.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from apps.accounts.models import Project, User
from apps.common.models import Stamped
from apps.labeling.models.comparisons import Prompt, Response
from apps.labeling.models.people import Guideline

MOST_RESPONSES = 9  # one digit key for each
MOST_POINTS = 11  # of a scale, such as 0 to 10


class RatingTask(Stamped):
    """One prompt and its responses, to be graded on a scale or put in order."""

    class Kind(models.TextChoices):
        GRADED = "graded", "graded"
        RANKING = "ranking", "ranking"

    class State(models.TextChoices):
        OPEN = "open", "open"
        RATED = "rated", "rated"
        REVIEW = "review", "needs review"
        DROPPED = "dropped", "dropped"

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="rating_tasks")
    prompt = models.ForeignKey(Prompt, on_delete=models.CASCADE, related_name="rating_tasks")
    kind = models.CharField(max_length=7, choices=Kind.choices)
    external_id = models.CharField(max_length=120, blank=True)
    state = models.CharField(max_length=7, choices=State.choices, default=State.OPEN)
    low = models.SmallIntegerField(help_text="the lowest grade; of a ranking, 1: the best rank")
    high = models.SmallIntegerField(help_text="the highest grade; of a ranking, K")
    low_label = models.CharField(max_length=40, blank=True)
    high_label = models.CharField(max_length=40, blank=True)
    overlap = models.PositiveSmallIntegerField(default=3, help_text="ratings wanted")
    priority = models.FloatField(default=0.0)
    n_ratings = models.PositiveIntegerField(default=0, help_text="current ratings")
    review_reason = models.CharField(max_length=300, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "external_id"],
                condition=~Q(external_id=""),
                name="rating_task_external_id_once",
            ),
            models.CheckConstraint(
                condition=Q(high__gte=F("low")) & Q(high__lt=F("low") + MOST_POINTS),
                name="rating_task_scale_in_order",
            ),
            models.CheckConstraint(
                condition=Q(overlap__gte=1) & Q(n_ratings__lte=F("overlap")),
                name="rating_task_overlap_holds",
            ),
        ]
        indexes = [models.Index(fields=["project", "state"], name="rating_task_by_state")]

    def __str__(self) -> str:
        return f"rating task {self.pk}"


class RatingItem(models.Model):
    """A response in its stored place, 1 to K, which no annotator sees."""

    task = models.ForeignKey(RatingTask, on_delete=models.CASCADE, related_name="items")
    position = models.PositiveSmallIntegerField()
    response = models.ForeignKey(Response, on_delete=models.PROTECT, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["task", "position"], name="rating_item_position_once"),
            models.UniqueConstraint(fields=["task", "response"], name="rating_item_response_once"),
            models.CheckConstraint(
                condition=Q(position__gte=1) & Q(position__lte=MOST_RESPONSES),
                name="rating_item_at_most_nine",
            ),
        ]

    def __str__(self) -> str:
        return f"response {self.position} of rating task {self.task_id}"


class RatingSlot(models.Model):
    """The right to rate one task once; carries what handing out reads, like `Slot`."""

    class State(models.TextChoices):
        FREE = "free", "free"
        LEASED = "leased", "leased"
        DONE = "done", "rated"
        WITHDRAWN = "withdrawn", "withdrawn"

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    task = models.ForeignKey(RatingTask, on_delete=models.CASCADE, related_name="slots")
    position = models.PositiveSmallIntegerField()
    state = models.CharField(max_length=9, choices=State.choices, default=State.FREE)
    priority = models.FloatField(default=0.0)
    shuffle = models.FloatField(default=0.0, help_text="a seeded draw in [0, 1)")
    topic = models.CharField(max_length=200, blank=True)
    language = models.CharField(max_length=12, blank=True)
    annotator = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    leased_at = models.DateTimeField(null=True, blank=True)
    leased_until = models.DateTimeField(null=True, blank=True)
    shown = ArrayField(
        models.PositiveSmallIntegerField(),
        default=list,
        blank=True,
        help_text="positions of the responses as they are shown; one draw per annotator and task",
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["task", "position"], name="rating_slot_position_once"),
            models.UniqueConstraint(
                fields=["task", "annotator"],
                condition=Q(annotator__isnull=False),
                name="rating_slot_annotator_meets_task_once",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["free", "withdrawn"], annotator__isnull=True)
                | Q(state__in=["leased", "done"], annotator__isnull=False),
                name="rating_slot_held_means_annotator",
            ),
            models.CheckConstraint(
                condition=~Q(state="leased") | Q(leased_until__isnull=False),
                name="rating_slot_lease_ends",
            ),
        ]
        indexes = [
            models.Index(
                fields=["project", "-priority", "shuffle"],
                condition=Q(state__in=["free", "leased"]),
                name="rating_slot_open",
            ),
            models.Index(
                fields=["annotator", "project"],
                condition=Q(state="leased"),
                name="rating_slot_held_by",
            ),
        ]

    def __str__(self) -> str:
        return f"slot {self.position} of rating task {self.task_id}"


class Rating(models.Model):
    """One person's rating of a whole task, or one revision of it: rows are added, never changed.

    `values` go by the stored places of the responses: grades, or competition ranks (1 is best, ties
    share a rank, the next rank is skipped).
    """

    class Source(models.TextChoices):
        PAGE = "page", "rating screen"
        API = "api", "API"

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="ratings")
    task = models.ForeignKey(RatingTask, on_delete=models.PROTECT, related_name="ratings")
    slot = models.ForeignKey(RatingSlot, on_delete=models.PROTECT, related_name="ratings")
    annotator = models.ForeignKey(User, on_delete=models.PROTECT, related_name="ratings")
    values = ArrayField(models.SmallIntegerField())
    shown = ArrayField(models.PositiveSmallIntegerField())
    note = models.TextField(blank=True)
    guideline = models.ForeignKey(Guideline, null=True, blank=True, on_delete=models.PROTECT)
    active_ms = models.PositiveIntegerField(null=True, blank=True)
    wall_ms = models.PositiveIntegerField(null=True, blank=True)
    idempotency_key = models.CharField(max_length=120)
    source = models.CharField(max_length=4, choices=Source.choices, default=Source.PAGE)
    revision = models.PositiveSmallIntegerField(default=1)
    supersedes = models.OneToOneField(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="superseded_by"
    )
    is_current = models.BooleanField(default=True)
    rated_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["annotator", "idempotency_key"], name="rating_submitted_once"
            ),
            models.UniqueConstraint(
                fields=["slot"], condition=Q(is_current=True), name="rating_current_once_per_slot"
            ),
            models.CheckConstraint(
                condition=Q(revision=1, supersedes__isnull=True)
                | Q(revision__gt=1, supersedes__isnull=False),
                name="rating_revisions_form_a_chain",
            ),
            models.CheckConstraint(
                condition=Q(values__len=F("shown__len")), name="rating_values_for_all_shown"
            ),
        ]
        indexes = [
            models.Index(fields=["task"], condition=Q(is_current=True), name="rating_current"),
            models.Index(fields=["project", "annotator", "-rated_at"], name="rating_by_annotator"),
        ]

    def __str__(self) -> str:
        return f"rating of task {self.task_id}"


class RatingSkip(models.Model):
    """Someone passed on a task; it goes to others."""

    task = models.ForeignKey(RatingTask, on_delete=models.CASCADE, related_name="skips")
    annotator = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    reason = models.CharField(max_length=300, blank=True)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["task", "annotator"], name="rating_skip_once")
        ]

    def __str__(self) -> str:
        return f"skip of rating task {self.task_id}"
