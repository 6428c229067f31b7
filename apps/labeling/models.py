"""What is compared, who holds it, how it was voted on, what was decided.

Races are settled here, by constraints: a slot belongs to one annotator, an annotator meets a
comparison once (but for hidden repeats), a slot has one current vote.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Func, Q, Value

from apps.accounts.models import Project, User
from apps.common.models import Stamped

# A vote is in the audit sample when the hash of its id, with this seed, falls under the rate.
AUDIT_SEED = 20161


class Choice(models.TextChoices):
    """A vote's choice, in canonical terms (not left and right)."""

    A = "a", "A is better"
    B = "b", "B is better"
    TIE = "tie", "Tie"
    BOTH_BAD = "both_bad", "Both are bad"


def reason_chips() -> list[str]:
    """The reasons offered beside a free text, until a project has its own."""
    return ["Correct", "Complete", "Clear", "To the point", "Honest about limits", "Safer"]


class LabelingSettings(Stamped):
    """How a project labels: overlap, the decision rule, leases, what the screen asks.

    The shares say how the queue is mixed: first gold, hidden repeats and audit re-votes, each in
    its share of hand-outs; the rest is by priority or at random, `random_share` of it at random.
    """

    project = models.OneToOneField(
        Project, on_delete=models.CASCADE, primary_key=True, related_name="labeling"
    )
    overlap = models.PositiveSmallIntegerField(default=3, help_text="votes per comparison")
    max_overlap = models.PositiveSmallIntegerField(default=5)
    least_votes = models.PositiveSmallIntegerField(default=3)
    least_agreeing = models.PositiveSmallIntegerField(default=3)
    least_share = models.FloatField(default=0.6)
    lease_seconds = models.PositiveIntegerField(default=900)
    random_share = models.FloatField(
        default=0.5, help_text="of the queue drawn at random, never zero: agreement rests on it"
    )
    show_tie = models.BooleanField(default=True)
    show_both_bad = models.BooleanField(default=True)
    show_strength = models.BooleanField(default=False)
    show_rationale = models.BooleanField(default=False)
    require_rationale = models.BooleanField(
        default=False, help_text="a reason chip or a text with every vote"
    )
    reasons = ArrayField(models.CharField(max_length=40), default=reason_chips, blank=True)
    criteria = models.JSONField(
        default=list, blank=True, help_text='[{"key": …, "label": …}, …]: a row A / tie / B each'
    )
    require_criteria = models.BooleanField(default=False)
    show_flags = models.BooleanField(default=True)
    show_improve = models.BooleanField(
        default=False, help_text="an editor for an improved version of the better answer"
    )
    gold_share = models.FloatField(default=0.0)
    repeat_share = models.FloatField(default=0.0)
    audit_share = models.FloatField(
        default=0.0, help_text="of what reviewers and admins get: blind re-votes"
    )
    audit_rate = models.FloatField(default=0.1, help_text="of votes, drawn by a seeded hash")
    skips_to_review = models.PositiveSmallIntegerField(default=3)
    acknowledge_guidelines = models.BooleanField(default=True)
    daily_cap = models.PositiveIntegerField(default=0, help_text="votes a person a day; 0: no cap")
    qualification_pairs = models.PositiveSmallIntegerField(
        default=0, help_text="gold pairs to judge before real work; 0: no qualification"
    )
    qualification_pass = models.FloatField(default=0.8)
    qualification_attempts = models.PositiveSmallIntegerField(default=3)
    qualification_cooldown_minutes = models.PositiveIntegerField(default=60)
    constraint_phrases = ArrayField(
        models.CharField(max_length=200),
        default=list,
        blank=True,
        help_text="an answer that holds one goes to human review",
    )

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(gold_share__gte=0)
                & Q(repeat_share__gte=0)
                & Q(audit_share__gte=0)
                & Q(gold_share__lte=0.5 - F("repeat_share") - F("audit_share")),
                name="labeling_shares_leave_work",
            ),
            models.CheckConstraint(
                condition=Q(overlap__gte=1) & Q(max_overlap__gte=F("overlap")),
                name="labeling_overlap_in_order",
            ),
            models.CheckConstraint(
                condition=Q(least_share__gt=0) & Q(least_share__lte=1),
                name="labeling_share_is_a_share",
            ),
            models.CheckConstraint(
                condition=Q(random_share__gt=0) & Q(random_share__lte=1),
                name="labeling_random_share_not_zero",
            ),
        ]

    def __str__(self) -> str:
        return f"labeling settings of {self.project_id}"


class Annotator(Stamped):
    """One person's standing in one project: what they have read, may get, and have passed.

    Made when first needed; no row means: nothing acknowledged, no limits, not qualified. That
    someone is paused stands with their membership.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="annotators")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    acknowledged_version = models.PositiveIntegerField(default=0)
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    qualified_at = models.DateTimeField(null=True, blank=True)
    daily_cap = models.PositiveIntegerField(
        null=True, blank=True, help_text="votes a day; empty: the project's"
    )
    topics = ArrayField(models.CharField(max_length=200), default=list, blank=True)
    languages = ArrayField(models.CharField(max_length=12), default=list, blank=True)
    votes_day = models.DateField(null=True, blank=True, help_text="UTC day of the last vote")
    votes_of_day = models.PositiveIntegerField(
        default=0, help_text="votes cast on that day, counted as they are cast"
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "user"], name="annotator_once_per_project")
        ]

    def __str__(self) -> str:
        return f"annotator {self.user_id} of {self.project_id}"


class Guideline(Stamped):
    """A version of the instructions; every vote names the one it was cast under."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="guidelines")
    version = models.PositiveIntegerField()
    body = models.TextField(help_text="Markdown")
    is_major = models.BooleanField(default=False)
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "version"], name="guideline_version_once"),
        ]

    def __str__(self) -> str:
        return f"guideline {self.version} of {self.project_id}"


class Prompt(Stamped):
    """What was asked: a list of messages, `[{"role": "user", "content": …}, …]`."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="prompts")
    messages = models.JSONField()
    text_hash = models.CharField(max_length=64, help_text="of the normalised messages")
    group_key = models.CharField(
        max_length=200, db_index=True, help_text="what splits go by: topic, debate or the prompt"
    )
    topic = models.CharField(max_length=200, blank=True)
    language = models.CharField(max_length=12, blank=True)
    source = models.CharField(max_length=120, blank=True)
    licence = models.CharField(max_length=60, blank=True)
    metadata = models.JSONField(default=dict, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "text_hash"], name="prompt_once_per_project")
        ]

    def __str__(self) -> str:
        return f"prompt {self.pk}"


class Response(Stamped):
    """An answer to a prompt. Where it came from is kept, and never shown to annotators."""

    class Origin(models.TextChoices):
        IMPORT = "import", "imported"
        HUMAN = "human", "written by a person"
        MODEL = "model", "generated by a model"
        EDIT = "edit", "a person's improvement of an answer"

    prompt = models.ForeignKey(Prompt, on_delete=models.CASCADE, related_name="responses")
    messages = models.JSONField(help_text="the assistant's turn or turns")
    text_hash = models.CharField(max_length=64)
    origin = models.CharField(max_length=8, choices=Origin.choices, default=Origin.IMPORT)
    origin_ref = models.CharField(
        max_length=80, blank=True, help_text="a checkpoint, a person, a file"
    )
    metadata = models.JSONField(default=dict, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["prompt", "text_hash", "origin", "origin_ref"], name="response_once"
            )
        ]

    def __str__(self) -> str:
        return f"response {self.pk}"


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

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="comparisons")
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
                fields=["project"],
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

    class State(models.TextChoices):
        FREE = "free", "free"
        LEASED = "leased", "leased"
        DONE = "done", "voted"
        WITHDRAWN = "withdrawn", "withdrawn"

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    comparison = models.ForeignKey(Comparison, on_delete=models.CASCADE, related_name="slots")
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
                condition=Q(annotator__isnull=False) & ~Q(kind="repeat"),
                name="slot_annotator_meets_comparison_once",
            ),
            models.UniqueConstraint(
                fields=["comparison", "annotator"],
                condition=Q(annotator__isnull=False) & Q(kind="repeat"),
                name="slot_repeated_once",
            ),
            models.CheckConstraint(
                condition=Q(kind__in=["repeat", "audit"], measures__isnull=False)
                | Q(kind__in=["regular", "gold"], measures__isnull=True),
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
                condition=Q(state="free"),
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
                condition=Q(state="free"),
                name="slot_free_by_topic",
            ),
            models.Index(
                fields=["measures"],
                condition=Q(measures__isnull=False),
                name="slot_measuring",
            ),
        ]

    def __str__(self) -> str:
        return f"slot {self.position} of comparison {self.comparison_id}"


class Vote(models.Model):
    """One vote, or one revision of it: rows are added, never overwritten.

    A revision points at the one before (`supersedes`); the newest is `is_current`.
    """

    class Source(models.TextChoices):
        PAGE = "page", "label screen"
        API = "api", "API"
        IMPORT = "import", "imported"

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="votes")
    comparison = models.ForeignKey(Comparison, on_delete=models.PROTECT, related_name="votes")
    slot = models.ForeignKey(Slot, on_delete=models.PROTECT, related_name="votes")
    annotator = models.ForeignKey(User, on_delete=models.PROTECT, related_name="votes")
    choice = models.CharField(max_length=8, choices=Choice.choices)
    chosen = models.ForeignKey(
        Response,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="the canonical response preferred; empty for tie and both bad",
    )
    left_is = models.CharField(
        max_length=1,
        blank=True,
        choices=[("a", "A"), ("b", "B")],
        help_text="which response stood left; empty when unknown (imports)",
    )
    strength = models.PositiveSmallIntegerField(null=True, blank=True)  # 1 slightly, 2 much
    criteria = models.JSONField(default=dict, blank=True)  # {criterion: a | tie | b}
    reasons = ArrayField(models.CharField(max_length=40), default=list, blank=True)
    rationale = models.TextField(blank=True)
    flags = ArrayField(models.CharField(max_length=40), default=list, blank=True)
    improvement = models.ForeignKey(
        Response,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="the better answer as this person would have it",
    )
    guideline = models.ForeignKey(Guideline, null=True, blank=True, on_delete=models.PROTECT)
    active_ms = models.PositiveIntegerField(null=True, blank=True)
    wall_ms = models.PositiveIntegerField(null=True, blank=True)
    idempotency_key = models.CharField(max_length=80)
    source = models.CharField(max_length=6, choices=Source.choices, default=Source.PAGE)
    revision = models.PositiveSmallIntegerField(default=1)
    supersedes = models.OneToOneField(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="superseded_by"
    )
    is_current = models.BooleanField(default=True)
    cast_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["annotator", "idempotency_key"], name="vote_submitted_once"
            ),
            models.UniqueConstraint(
                fields=["slot"], condition=Q(is_current=True), name="vote_current_once_per_slot"
            ),
            models.CheckConstraint(
                condition=Q(choice__in=["a", "b"], chosen__isnull=False)
                | Q(choice__in=["tie", "both_bad"], chosen__isnull=True),
                name="vote_names_what_it_chose",
            ),
            models.CheckConstraint(
                condition=Q(revision=1, supersedes__isnull=True)
                | Q(revision__gt=1, supersedes__isnull=False),
                name="vote_revisions_form_a_chain",
            ),
        ]
        indexes = [
            models.Index(fields=["comparison"], condition=Q(is_current=True), name="vote_current"),
            models.Index(fields=["project", "annotator", "-cast_at"], name="vote_by_annotator"),
            models.Index(
                "project",
                Func("id", Value(AUDIT_SEED), function="hashint8extended"),
                condition=Q(is_current=True),
                name="vote_audit_sample",
            ),
        ]

    def __str__(self) -> str:
        return f"vote {self.choice} on {self.comparison_id}"


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


class Decision(Stamped):
    """What the votes on a comparison amount to, under the rule in force when it was made."""

    class Outcome(models.TextChoices):
        ACCEPTED = "accepted", "accepted"
        CONTESTED = "contested", "contested"
        NEEDS_VOTES = "needs_votes", "needs more votes"
        NEEDS_REVIEW = "needs_review", "needs review"
        ADJUDICATED = "adjudicated", "adjudicated"
        DROPPED = "dropped", "dropped"

    comparison = models.OneToOneField(
        Comparison, on_delete=models.CASCADE, primary_key=True, related_name="decision"
    )
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    outcome = models.CharField(max_length=12, choices=Outcome.choices)
    winner = models.CharField(max_length=8, blank=True, choices=Choice.choices)
    n_a = models.PositiveIntegerField(default=0)
    n_b = models.PositiveIntegerField(default=0)
    n_tie = models.PositiveIntegerField(default=0)
    n_both_bad = models.PositiveIntegerField(default=0)
    n_agreeing = models.PositiveIntegerField(default=0)
    share = models.FloatField(default=0.0, help_text="agreeing ÷ all votes, ties included")
    posterior = models.FloatField(null=True, blank=True)
    rule = models.JSONField(default=dict)
    reason = models.CharField(max_length=300, blank=True)

    class Meta:
        indexes = [models.Index(fields=["project", "outcome"], name="decision_by_outcome")]

    def __str__(self) -> str:
        return f"{self.outcome} on {self.comparison_id}"


class QualificationAttempt(Stamped):
    """One go at a project's qualification: so many gold pairs, answered with their explanations."""

    class State(models.TextChoices):
        RUNNING = "running", "running"
        PASSED = "passed", "passed"
        FAILED = "failed", "failed"

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    number = models.PositiveSmallIntegerField()
    state = models.CharField(max_length=7, choices=State.choices, default=State.RUNNING)
    pass_share = models.FloatField(help_text="the mark in force when it began")
    n_pairs = models.PositiveSmallIntegerField()
    n_right = models.PositiveSmallIntegerField(default=0)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "user", "number"], name="qualification_attempt_once"
            ),
            models.UniqueConstraint(
                fields=["project", "user"],
                condition=Q(state="running"),
                name="qualification_one_running",
            ),
        ]

    def __str__(self) -> str:
        return f"attempt {self.number} of {self.user_id} at {self.project_id}"


class QualificationAnswer(models.Model):
    """One pair of an attempt, and what was answered. Practice is not work: this is no vote."""

    attempt = models.ForeignKey(
        QualificationAttempt, on_delete=models.CASCADE, related_name="answers"
    )
    comparison = models.ForeignKey(Comparison, on_delete=models.PROTECT, related_name="+")
    position = models.PositiveSmallIntegerField()
    left_is = models.CharField(max_length=1, choices=[("a", "A"), ("b", "B")])
    choice = models.CharField(max_length=8, blank=True, choices=Choice.choices)
    is_right = models.BooleanField(null=True, blank=True)
    answered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["attempt", "comparison"], name="qualification_pair_once"
            ),
            models.UniqueConstraint(
                fields=["attempt", "position"], name="qualification_position_once"
            ),
            models.CheckConstraint(
                condition=Q(choice="", is_right__isnull=True, answered_at__isnull=True)
                | (~Q(choice="") & Q(is_right__isnull=False, answered_at__isnull=False)),
                name="qualification_answered_wholly",
            ),
        ]

    def __str__(self) -> str:
        return f"pair {self.position} of attempt {self.attempt_id}"
