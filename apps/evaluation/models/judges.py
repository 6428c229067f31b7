"""Models that judge pairs of answers, what they said, what that is worth, and what it may be used
for.

A judge is no person. Its id is drawn from the sequence of people's ids, so that no person ever has
it, and triggers (migration 0010) refuse it as a member, as an annotator and as a person: a verdict
can never be counted as a vote.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from apps.accounts.models import Project, User
from apps.common.models import Named, Stamped
from apps.labeling.models import Task
from apps.snapshots.models import Snapshot
from apps.training.models import Checkpoint, Run


class Judge(Stamped):
    """Versions of one judge under one name."""

    id = models.BigIntegerField(primary_key=True, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="judges")
    name = models.CharField(max_length=80)
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    archived_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "name"], name="judge_name_once"),
        ]

    def __str__(self) -> str:
        return self.name


class JudgeVersion(Stamped):
    """A model with everything that decides its verdicts. Never changed: another prompt, another
    setting or another fingerprint of its server is another version.

    fingerprint: what the server said that it runs, empty until it has been asked and for weights
    that are here, whose hash is in `sha256`. changed_at: since when its server answers otherwise,
    so that no figure of this version holds any longer.
    """

    judge = models.ForeignKey(Judge, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    model = models.ForeignKey(Checkpoint, on_delete=models.RESTRICT, related_name="+")
    config = models.JSONField(default=dict, help_text="of its runs: prompt, rubric, sampling …")
    sha256 = models.CharField(max_length=64, help_text="of model, configuration and fingerprint")
    fingerprint = models.CharField(max_length=300, blank=True, default="")
    note = models.CharField(max_length=300, blank=True, default="")
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    changed_at = models.DateTimeField(null=True, blank=True)
    changed_because = models.CharField(max_length=300, blank=True, default="")
    probe_at = models.DateTimeField(
        null=True, blank=True, help_text="of a served model: when it is asked the same again"
    )
    probe_answers = models.JSONField(
        default=dict, blank=True, help_text="{pair: [first, second]} of the first probe"
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["judge", "number"], name="judge_version_number_once"),
            models.UniqueConstraint(fields=["judge", "sha256"], name="judge_version_once"),
        ]

    def __str__(self) -> str:
        return f"{self.judge} v{self.number}"

    @property
    def reads_answers_alone(self) -> bool:
        """Whether it is a reward model, which no order of answers can move."""
        return self.model.run.kind in Run.REWARD_KINDS

    @property
    def is_served(self) -> bool:
        return self.model.run.kind == Run.Kind.SERVED


class JudgeRun(Stamped):
    """A run that asks a version about pairs, and what its verdicts are wanted for.

    scope: which pairs, as `selectors.judges.Scope` writes it; wanted: what is computed from the
    verdicts once they are there, and by which numbers; acted: whether that was done. taken_at: when
    its verdicts were taken over; problem: why they were not."""

    class Purpose(models.TextChoices):
        MEASURE = "measure", "measure what it is worth"
        TUNE = "tune", "choose a prompt"
        CERTIFY = "certify", "certify labels"
        LABEL = "label", "label pairs"
        PROBE = "probe", "see whether it still answers alike"

    run = models.OneToOneField(
        Run, on_delete=models.CASCADE, primary_key=True, related_name="judging"
    )
    version = models.ForeignKey(JudgeVersion, on_delete=models.CASCADE, related_name="runs")
    pairs = models.ForeignKey(Snapshot, on_delete=models.RESTRICT, related_name="+")
    purpose = models.CharField(max_length=8, choices=Purpose.choices)
    scope = models.JSONField(default=dict)
    wanted = models.JSONField(default=dict)
    acted = models.BooleanField(default=False)
    by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    taken_at = models.DateTimeField(null=True, blank=True)
    problem = models.CharField(max_length=300, blank=True, default="")

    class Meta:
        indexes = [models.Index(fields=["run"], condition=Q(acted=False), name="judge_run_due")]

    def __str__(self) -> str:
        return f"{self.version} in {self.run_id}"


class JudgeVerdict(models.Model):
    """What a version said of one pair, asked both ways round.

    first: P(the answer shown first is better) with A first; second: the same with B first; empty
    where the answer could not be read. preference: P(A is better), ½(first + 1 − second), and ½
    where one of them is empty."""

    id = models.BigAutoField(primary_key=True)
    version = models.ForeignKey(JudgeVersion, on_delete=models.CASCADE, related_name="verdicts")
    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="verdicts_of_judges")
    run = models.ForeignKey(Run, null=True, on_delete=models.SET_NULL, related_name="+")
    first = models.FloatField(null=True, blank=True)
    second = models.FloatField(null=True, blank=True)
    preference = models.FloatField()
    said = ArrayField(models.CharField(max_length=300, blank=True), default=list, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["version", "task"], name="verdict_once_per_version"),
            models.CheckConstraint(
                condition=Q(preference__gte=0, preference__lte=1)
                & (Q(first__isnull=True) | Q(first__gte=0, first__lte=1))
                & (Q(second__isnull=True) | Q(second__gte=0, second__lte=1)),
                name="verdict_is_a_probability",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.preference:.2f} on {self.task_id}"


class JudgeMeasurement(models.Model):
    """What a version was found to be worth beside people, on the pairs of a scope.

    part: of the human sample by the hash of their prompts: all, or tune, choose and certify, where
    figures of people shaped the prompt. share: of the pairs that the human sample is; look: how
    often the part certify of this scope was read by versions of this judge. Added, never changed:
    the newest one of a version, scope and part holds.
    """

    class Part(models.TextChoices):
        ALL = "all", "all of the sample"
        TUNE = "tune", "the part for tuning"
        CHOOSE = "choose", "the part for choosing"
        CERTIFY = "certify", "the part for certifying"

    id = models.BigAutoField(primary_key=True)
    version = models.ForeignKey(JudgeVersion, on_delete=models.CASCADE, related_name="measurements")
    scope = models.JSONField(default=dict)
    part = models.CharField(max_length=7, choices=Part.choices)
    share = models.FloatField()
    look = models.PositiveIntegerField(default=1)
    n_pairs = models.PositiveIntegerField(help_text="with a verdict and a vote, in the sample")
    n_votes = models.PositiveIntegerField()
    n_simulated = models.PositiveIntegerField(default=0)
    figures = models.JSONField()
    refused = models.CharField(max_length=300, blank=True, default="", help_text="why no figures")
    by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["version", "-id"], name="judge_measured_newest")]

    def __str__(self) -> str:
        return f"{self.version} on {self.n_pairs} pairs"


class LabelCertificate(Named):
    """Labels by a version under a contract: wrong in at most a share `error` of the pairs that it
    labels, with probability 1 − `failure`, by Learn-then-Test on pairs with votes that shaped
    nothing.

    threshold: least confidence with which it labels, None where none could be certified. A share
    `audited` of the labels is drawn by hash and voted on by people; `stopped_at` says since when
    the certificate no longer holds, because those votes contradict it or its server changed.
    """

    class Against(models.TextChoices):
        DECISION = "decision", "what people decided"
        VOTE = "vote", "one vote of each pair"

    version = models.ForeignKey(JudgeVersion, on_delete=models.RESTRICT, related_name="+")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    scope = models.JSONField(default=dict)
    against = models.CharField(max_length=8, choices=Against.choices)
    error = models.FloatField()
    failure = models.FloatField()
    audited = models.FloatField(help_text="share of the labels that people check")
    look = models.PositiveIntegerField()
    threshold = models.FloatField(null=True, blank=True)
    temperature = models.FloatField(default=1.0, help_text="that confidences are calibrated by")
    figures = models.JSONField(default=dict)
    sha256 = models.CharField(max_length=64)
    stopped_at = models.DateTimeField(null=True, blank=True)
    stopped_because = models.CharField(max_length=300, blank=True, default="")
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(error__gt=0, error__lt=1, failure__gt=0, failure__lt=1)
                & Q(audited__gt=0, audited__lte=1),
                name="certificate_states_shares",
            )
        ]

    def __str__(self) -> str:
        return f"{self.version}: at most {self.error:.0%} wrong"

    @property
    def is_valid(self) -> bool:
        return self.threshold is not None and self.stopped_at is None


class CertifiedLabel(models.Model):
    """The label that a certificate gives one pair. probability: calibrated, that it is right."""

    id = models.BigAutoField(primary_key=True)
    certificate = models.ForeignKey(
        LabelCertificate, on_delete=models.CASCADE, related_name="labels"
    )
    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="+")
    label = models.CharField(max_length=1, choices=[("a", "A"), ("b", "B")])
    probability = models.FloatField()
    is_audited = models.BooleanField(default=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["certificate", "task"], name="certified_label_once"),
        ]

    def __str__(self) -> str:
        return f"{self.label} on {self.task_id}"


class CertificateUse(models.Model):
    """A dataset that holds labels under a certificate."""

    snapshot = models.OneToOneField(
        Snapshot, on_delete=models.CASCADE, primary_key=True, related_name="certificate_use"
    )
    certificate = models.ForeignKey(
        LabelCertificate, on_delete=models.RESTRICT, related_name="uses"
    )
    n_labels = models.PositiveIntegerField()

    def __str__(self) -> str:
        return f"{self.certificate_id} in {self.snapshot_id}"
