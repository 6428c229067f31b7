"""How tasks were answered, and what was decided of the pairs."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Func, Q, Value

from apps.accounts.models import Project, User
from apps.common.models import Stamped
from apps.labeling.models.people import Guideline
from apps.labeling.models.tasks import Choice, Comparison, DecideBy, Response, Slot, Task

# A vote is in the audit sample when the hash of its id, with this seed, falls under the rate.
AUDIT_SEED = 20161


class AnyAnswer(models.Model):
    """What answers of all kinds have.

    A revision points at the one before (`supersedes`); the newest is `is_current`.
    """

    class Source(models.TextChoices):
        PAGE = "page", "label screen"
        API = "api", "API"
        IMPORT = "import", "imported"
        SIMULATED = "sim", "simulated"

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(
        Project, on_delete=models.CASCADE, related_name="%(class)ss", db_index=False
    )
    slot = models.ForeignKey(Slot, on_delete=models.PROTECT, related_name="%(class)ss")
    annotator = models.ForeignKey(
        User, on_delete=models.PROTECT, related_name="%(class)ss", db_index=False
    )
    left_is = models.CharField(
        max_length=1,
        blank=True,
        choices=[("a", "A"), ("b", "B")],
        help_text="which response of a pair stood left; empty when unknown (imports)",
    )
    strength = models.PositiveSmallIntegerField(null=True, blank=True)  # 1 slightly, 2 much
    criteria = models.JSONField(default=dict, blank=True)  # {criterion: a | tie | b}
    reasons = ArrayField(models.CharField(max_length=40), default=list, blank=True)
    rationale = models.TextField(blank=True)
    flags = ArrayField(models.CharField(max_length=40), default=list, blank=True)
    guideline = models.ForeignKey(
        Guideline, null=True, blank=True, on_delete=models.PROTECT, db_index=False
    )
    active_ms = models.PositiveIntegerField(null=True, blank=True)
    wall_ms = models.PositiveIntegerField(null=True, blank=True)
    idempotency_key = models.CharField(max_length=120)
    source = models.CharField(max_length=6, choices=Source.choices, default=Source.PAGE)
    revision = models.PositiveSmallIntegerField(default=1)
    supersedes = models.OneToOneField(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="superseded_by"
    )
    is_current = models.BooleanField(default=True)
    cast_at = models.DateTimeField()
    chosen = models.ForeignKey(
        Response,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="the canonical response preferred; empty for tie and both bad",
    )
    improvement = models.ForeignKey(
        Response,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
        db_index=False,
        help_text="the better answer as this person would have it",
    )

    class Meta:
        abstract = True


class Answer(AnyAnswer):
    """One answer to a task, or one revision of it: rows are added, never overwritten.

    A pair's and a blind pair's is its `choice`. The others' are `values` by the stored places of
    the responses: grades, or competition ranks (1 is best, ties share a rank, the next rank is
    skipped); `shown` is the order of the places on the screen.
    """

    task = models.ForeignKey(Task, on_delete=models.PROTECT, related_name="answers")
    kind = models.CharField(
        max_length=5, choices=Task.Kind.choices, default=Task.Kind.PAIR, db_default=Task.Kind.PAIR
    )
    choice = models.CharField(max_length=8, blank=True, choices=Choice.choices)
    values = ArrayField(models.SmallIntegerField(), default=list, db_default=[], blank=True)
    shown = ArrayField(models.PositiveSmallIntegerField(), default=list, db_default=[], blank=True)

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
                | Q(choice__in=["tie", "both_bad", ""], chosen__isnull=True),
                name="vote_names_what_it_chose",
            ),
            models.CheckConstraint(
                condition=Q(kind__in=["pair", "blind"], values=[], shown=[]) & ~Q(choice="")
                | ~Q(kind__in=["pair", "blind"])
                & ~Q(values=[])
                & Q(choice="", left_is="", improvement__isnull=True, values__len=F("shown__len")),
                name="answer_of_its_kind",
            ),
            models.CheckConstraint(
                condition=Q(revision=1, supersedes__isnull=True)
                | Q(revision__gt=1, supersedes__isnull=False),
                name="vote_revisions_form_a_chain",
            ),
        ]
        indexes = [
            # The newest vote of a project, which statistics compare themselves with every minute.
            models.Index(fields=["project", "id"], condition=Q(kind="pair"), name="vote_newest"),
            models.Index(
                fields=["improvement"],
                condition=Q(improvement__isnull=False),
                name="answer_improved",
            ),
            models.Index(fields=["project", "annotator", "-cast_at"], name="vote_by_annotator"),
            models.Index(
                fields=["project", "task"],
                condition=Q(is_current=True) & ~Q(flags=[]),
                name="vote_flagged",
            ),
            models.Index(
                "project",
                Func("id", Value(AUDIT_SEED), function="hashint8extended"),
                condition=Q(is_current=True),
                name="vote_audit_sample",
            ),
        ]

    def __str__(self) -> str:
        return f"answer {self.pk} to {self.task_id}"


class RunAnswer(models.Model):
    """What an answer to a pair of runs of agents says about the runs themselves.

    `outcome`: {a | b: {success | side_effects | repetition: yes | no | unsure}}; `first_error`:
    {a | b: number of the step, 0 for none}; `steps`: {"3-4": a | tie | b}, step 3 of A beside step
    4 of B; `unopened`: {a | b: numbers of steps with folded parts that were never opened}, null
    where the page could not tell. Steps count from 1 in the whole run.
    """

    answer = models.OneToOneField(
        Answer, on_delete=models.CASCADE, primary_key=True, related_name="runs"
    )
    outcome = models.JSONField(default=dict)
    first_error = models.JSONField(default=dict)
    steps = models.JSONField(default=dict)
    unopened = models.JSONField(null=True)

    def __str__(self) -> str:
        return f"of the runs of answer {self.answer_id}"


class Vote(AnyAnswer):
    """An answer to a pair. The table is a view of the answers that has no others, so that no count
    of votes ever meets a grade or a rank; what is written to it is an answer."""

    comparison = models.ForeignKey(
        Comparison, on_delete=models.PROTECT, related_name="votes", db_constraint=False
    )
    choice = models.CharField(max_length=8, choices=Choice.choices)

    class Meta:
        managed = False
        db_table = "labeling_vote"

    def __str__(self) -> str:
        return f"vote {self.choice} on {self.comparison_id}"


class Discard(Stamped):
    """Votes of one person that an admin set aside, so that others judge the pairs; can be undone.

    The votes stay as they are; their slots are of kind `discard` meanwhile. `filters`: which of
    the person's votes were meant.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    annotator = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    reason = models.CharField(max_length=300)
    filters = models.JSONField(default=dict, blank=True)
    n_votes = models.PositiveIntegerField()
    n_comparisons = models.PositiveIntegerField()
    undone_at = models.DateTimeField(null=True, blank=True)
    undone_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    def __str__(self) -> str:
        return f"{self.n_votes} votes of {self.annotator_id} discarded"


class DiscardedVote(models.Model):
    """One vote of a `Discard`, and the kind its slot goes back to."""

    discard = models.ForeignKey(Discard, on_delete=models.CASCADE, related_name="votes")
    vote = models.ForeignKey(Vote, on_delete=models.CASCADE, related_name="discards")
    was = models.CharField(max_length=8, choices=Slot.Kind.choices)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["discard", "vote"], name="discarded_vote_once")
        ]

    def __str__(self) -> str:
        return f"vote {self.vote_id} of discard {self.discard_id}"


class Decision(Stamped):
    """What the votes on a comparison amount to, under the rule of that time."""

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
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+", db_index=False)
    outcome = models.CharField(max_length=12, choices=Outcome.choices)
    winner = models.CharField(max_length=8, blank=True, choices=Choice.choices)
    n_a = models.PositiveIntegerField(default=0)
    n_b = models.PositiveIntegerField(default=0)
    n_tie = models.PositiveIntegerField(default=0)
    n_both_bad = models.PositiveIntegerField(default=0)
    n_agreeing = models.PositiveIntegerField(default=0)
    share = models.FloatField(default=0.0, help_text="agreeing ÷ all votes, ties included")
    decided_by = models.CharField(
        max_length=12, choices=DecideBy.choices, default=DecideBy.VOTES, db_default=DecideBy.VOTES
    )
    posteriors = ArrayField(
        models.FloatField(),
        size=4,
        null=True,
        blank=True,
        help_text="P(truth | votes) of each choice by the project's consensus; empty without one",
    )
    rule = models.JSONField(default=dict)
    reason = models.CharField(max_length=300, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["project", "outcome"], name="decision_by_outcome"),
            models.Index(
                fields=["project", "winner"],
                condition=Q(winner__in=["tie", "both_bad"]),
                name="decision_by_rare_winner",
            ),
        ]

    @property
    def by_choice(self) -> dict[str, float] | None:
        """{choice: posterior}, most probable first; None while no model is fitted."""
        if self.posteriors is None:
            return None
        pairs = zip(Choice.values, self.posteriors, strict=True)
        return dict(sorted(pairs, key=lambda pair: -pair[1]))

    @property
    def posterior_words(self) -> str:
        """ "A is better 97.2 %, Tie 2.1 %": what has at least half a percent."""
        shown = self.by_choice or {}
        return ", ".join(
            f"{Choice(choice).label} {100 * share:.1f} %"
            for choice, share in shown.items()
            if share >= 0.005
        )

    def __str__(self) -> str:
        return f"{self.outcome} on {self.comparison_id}"
