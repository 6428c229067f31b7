"""How a project labels: overlap, rule, mix of the queue, what the screen asks."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from apps.accounts.models import Project, User
from apps.common.models import Named, Stamped
from apps.labeling.models.tasks import MOST_POINTS, DecideBy, Task


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
    task_kind = models.CharField(
        max_length=5,
        choices=[one for one in Task.Kind.choices if one[0] != Task.Kind.BLIND],
        default=Task.Kind.PAIR,
        db_default=Task.Kind.PAIR,
        help_text="what files with several answers to a prompt become, where they do not say",
    )
    grade_low = models.SmallIntegerField(default=1, db_default=1, help_text="the worst grade")
    grade_high = models.SmallIntegerField(default=7, db_default=7, help_text="the best grade")
    grade_low_label = models.CharField(max_length=80, blank=True, default="", db_default="")
    grade_high_label = models.CharField(max_length=80, blank=True, default="", db_default="")
    overlap = models.PositiveSmallIntegerField(default=3, help_text="votes per comparison")
    max_overlap = models.PositiveSmallIntegerField(default=5)
    least_votes = models.PositiveSmallIntegerField(default=3)
    least_agreeing = models.PositiveSmallIntegerField(default=3)
    least_share = models.FloatField(default=0.6)
    decide_by = models.CharField(
        max_length=12,
        choices=DecideBy.choices,
        default=DecideBy.VOTES,
        db_default=DecideBy.VOTES,
        help_text="counted votes, or the posterior of a model of the voters",
    )
    least_posterior = models.FloatField(
        default=0.9, db_default=0.9, help_text="to accept, and to ask for no further votes"
    )
    stop_early = models.BooleanField(
        default=False,
        db_default=False,
        help_text="ask for no further votes once the posterior is reached",
    )
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
    ask_outcome = models.BooleanField(
        default=True,
        db_default=True,
        help_text="of each run of an agent: did it succeed, what else did it change, was it stuck",
    )
    ask_first_error = models.BooleanField(
        default=True, db_default=True, help_text="the first wrong step of each run of an agent"
    )
    ask_steps = models.BooleanField(
        default=False, db_default=False, help_text="which of two aligned steps is better"
    )
    show_costs = models.BooleanField(
        default=False,
        db_default=False,
        help_text="steps, tokens and cost of runs of agents stand above them",
    )
    run_lease_seconds = models.PositiveIntegerField(
        default=3_600, db_default=3_600, help_text="a pair of runs of agents is reserved for"
    )
    gold_share = models.FloatField(default=0.0)
    repeat_share = models.FloatField(default=0.0)
    audit_share = models.FloatField(
        default=0.0, help_text="of what reviewers and admins get: blind re-votes"
    )
    audit_rate = models.FloatField(default=0.1, help_text="of votes, drawn by a seeded hash")
    audit_days = models.PositiveSmallIntegerField(
        default=7, db_default=7, help_text="an audited vote is judged again within so many days"
    )
    judge_first = models.BooleanField(
        default=True,
        db_default=True,
        help_text="reviewers rule on a dispute before its votes are shown",
    )
    sensitive_topics = ArrayField(
        models.CharField(max_length=200),
        default=list,
        db_default=[],
        blank=True,
        help_text="pairs of these are covered by a warning",
    )
    sensitive_cap = models.PositiveIntegerField(
        default=0, db_default=0, help_text="sensitive pairs a person a day; 0: no cap"
    )
    fast_ms = models.PositiveIntegerField(
        default=2_000, db_default=2_000, help_text="answers faster than this were hardly read"
    )
    vote_price = models.FloatField(
        default=0.0, db_default=0.0, help_text="what one vote costs, in `currency`; 0: not stated"
    )
    label_budget = models.FloatField(
        default=0.0, db_default=0.0, help_text="for all votes, in `currency`; 0: not stated"
    )
    votes_quota = models.PositiveIntegerField(
        default=0, db_default=0, help_text="answers that are taken in 30 days; 0: no limit"
    )
    currency = models.CharField(max_length=3, default="EUR", db_default="EUR")
    skips_to_review = models.PositiveSmallIntegerField(default=3)
    acknowledge_guidelines = models.BooleanField(default=True)
    show_rulings = models.BooleanField(
        default=False,
        db_default=False,
        help_text="annotators learn how reviewers ruled on pairs that they answered",
    )
    show_gold = models.BooleanField(
        default=False,
        db_default=False,
        help_text="annotators read a day later which of their gold pairs they had right, and why",
    )
    daily_cap = models.PositiveIntegerField(default=0, help_text="votes a person a day; 0: no cap")
    completion_votes = models.PositiveIntegerField(
        default=0, db_default=0, help_text="answers that earn a completion code; 0: none"
    )
    due_on = models.DateField(null=True, blank=True, help_text="the last day of the work")
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

    data_statement = models.TextField(
        blank=True,
        default="",
        db_default="",
        max_length=2000,
        help_text="what answers are used for; whoever labels agrees to it first",
    )
    data_statement_version = models.PositiveIntegerField(default=0, db_default=0)
    remarks_licence = models.CharField(
        max_length=80,
        blank=True,
        default="",
        db_default="",
        help_text="of what annotators write; without one it is in no export",
    )

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(gold_share__gte=0)
                & Q(repeat_share__gte=0)
                & Q(audit_share__gte=0)
                & Q(gold_share__lte=0.500001 - F("repeat_share") - F("audit_share")),
                name="labeling_shares_leave_work",
            ),
            models.CheckConstraint(
                condition=Q(grade_high__gt=F("grade_low"))
                & Q(grade_high__lt=F("grade_low") + MOST_POINTS),
                name="labeling_grades_in_order",
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
                condition=Q(least_posterior__gt=0.5) & Q(least_posterior__lt=1),
                name="labeling_posterior_beyond_chance",
            ),
            models.CheckConstraint(
                condition=Q(random_share__gt=0) & Q(random_share__lte=1),
                name="labeling_random_share_not_zero",
            ),
        ]

    def __str__(self) -> str:
        return f"labeling settings of {self.project_id}"


# Files on their way in.


class ImportJob(Named):
    """A file on its way in: uploaded, checked without writing, imported; findable afterwards.

    It becomes comparisons to vote on, or (`makes`) a dataset of what was labelled elsewhere.

    `stage` is what is done (`undo`: its rows are taken back), `state` how far that is. A running
    job's worker holds the database's advisory lock of its number (`services.imports`), so that a
    killed one is noticed at once, and `attempt` is the fence: an attempt that was superseded
    changes nothing.
    """

    class Stage(models.TextChoices):
        CHECK = "check", "check"
        IMPORT = "import", "import"
        UNDO = "undo", "undo"

    class State(models.TextChoices):
        DRAFT = "draft", "needs column mapping"
        QUEUED = "queued", "waiting for a worker"
        RUNNING = "running", "running"
        DONE = "done", "done"
        FAILED = "failed", "failed"
        CANCELLED = "cancelled", "cancelled"
        INTERRUPTED = "interrupted", "interrupted"
        UNDONE = "undone", "undone"

    class Makes(models.TextChoices):
        COMPARISONS = "comparisons", "comparisons"
        PROMPTS = "prompts", "prompts"
        DEMONSTRATIONS = "demonstrations", "demonstrations"
        PREFERENCES = "preferences", "preferences"
        UNPAIRED = "unpaired", "single answers, desirable or not (KTO)"
        STEPWISE = "stepwise", "steps of trajectories, each right or wrong"

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="imports")
    makes = models.CharField(
        max_length=14, choices=Makes.choices, default=Makes.COMPARISONS, db_default="comparisons"
    )
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    number = models.BigIntegerField(unique=True, help_text="of its advisory lock")
    file_name = models.CharField(max_length=255)
    file_size = models.BigIntegerField(help_text="bytes")
    file_sha256 = models.CharField(max_length=64)
    file_deleted_at = models.DateTimeField(null=True, blank=True)
    stage = models.CharField(max_length=6, choices=Stage.choices, default=Stage.CHECK)
    state = models.CharField(max_length=11, choices=State.choices, default=State.DRAFT)
    settings = models.JSONField(default=dict, help_text="container, layout, mapping, options")
    preview = models.JSONField(default=dict, help_text="columns and first rows, as read with them")
    attempt = models.PositiveIntegerField(default=0)
    cancel_wanted = models.BooleanField(default=False)
    queued_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    due_on = models.DateField(
        null=True, blank=True, help_text="the last day for votes on its comparisons"
    )
    people = models.ManyToManyField(
        User, related_name="+", blank=True, help_text="who alone labels it; nobody here: everybody"
    )
    first_comparison = models.BigIntegerField(
        null=True, blank=True, help_text="set while not everybody labels it: the first of its ids"
    )
    last_comparison = models.BigIntegerField(null=True, blank=True)
    undo_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    error = models.TextField(blank=True, help_text="why it failed, in words for the importer")
    brought = models.JSONField(
        default=dict, db_default={}, blank=True, help_text="what attempts that were cut off wrote"
    )
    check_report = models.JSONField(default=dict, blank=True)
    result = models.JSONField(default=dict, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["project", "-created_at"], name="import_by_project"),
            models.Index(
                fields=["project"],
                condition=Q(first_comparison__isnull=False),
                name="import_not_for_all",
            ),
        ]

    def __str__(self) -> str:
        return f"import of {self.file_name}: {self.stage} {self.state}"


# Comparisons that are closed to a person, as ranges of ids: others label their import, it is being
# undone, or the person has given as many answers to an evaluation as one may (or it has ended). An
# import's comparisons are written together, so that between them lies no other of the project.
CLOSED_IDS = """(select range_agg(closed.ids) from (
  select int8range(j.first_comparison, j.last_comparison, '[]') as ids
  from labeling_importjob j
  where j.project_id = {project} and j.first_comparison is not null
    and (j.stage = 'undo' or not exists (select from labeling_importjob_people h
                                         where h.importjob_id = j.id and h.user_id = {user}))
  union all
  select int8range(e.first_task, e.last_task, '[]') from labeling_evaluationset e
  where e.project_id = {project}
    and (not e.is_open or e.most_each <= (
      select count(*) from labeling_slot mine
      where mine.task_id between e.first_task and e.last_task
        and mine.annotator_id = {user} and mine.state in ('leased', 'done')))
) closed)"""
