"""Live dialogues: a person writes, two systems answer blind, the choice continues the thread."""

import secrets
import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from apps.accounts.models import Project, User
from apps.common.models import Named, Stamped
from apps.labeling.models import Choice, Task
from apps.training.models import Checkpoint

MOST_SYSTEMS = 8
_SIDES = [("a", "first system"), ("b", "second system")]


def dialogue_seed() -> int:
    return secrets.randbelow(2**31)


def conversation_key() -> str:
    return uuid.uuid4().hex


class DialogueCampaign(Named):
    """What people are asked to talk with. Only `is_open` changes after it was made: `protocol`
    holds the rest, and every turn the hash of it."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="dialogues")
    name = models.CharField(max_length=120)
    system_prompt = models.TextField(blank=True)
    topics = ArrayField(
        models.CharField(max_length=200), default=list, blank=True, help_text="suggested openings"
    )
    temperature = models.FloatField(default=0.7)
    top_p = models.FloatField(default=1.0)
    max_new_tokens = models.PositiveIntegerField(default=512)
    answer_seconds = models.PositiveSmallIntegerField(
        default=60, help_text="an answer that takes longer did not come"
    )
    least_turns = models.PositiveSmallIntegerField(default=2)
    most_turns = models.PositiveSmallIntegerField(default=10)
    per_person = models.PositiveIntegerField(default=10, help_text="conversations of one person")
    in_all = models.PositiveIntegerField(default=1000, help_text="conversations of everybody")
    in_datasets = models.BooleanField(default=True)
    others = models.PositiveSmallIntegerField(
        default=0, help_text="further people who are asked about each pair"
    )
    seed = models.BigIntegerField(default=dialogue_seed)
    protocol = models.JSONField()
    protocol_sha256 = models.CharField(max_length=64)
    is_open = models.BooleanField(default=True)
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(least_turns__gte=1) & Q(most_turns__gte=F("least_turns")),
                name="dialogue_turns_in_order",
            ),
            models.CheckConstraint(
                condition=Q(others=0) | Q(in_datasets=True), name="dialogue_others_need_datasets"
            ),
        ]

    @property
    def batch(self) -> str:
        """Of its pairs in the label queue."""
        return f"dialogue {self.pk}"

    def __str__(self) -> str:
        return self.name


class DialogueSystem(models.Model):
    """One of the models of a campaign; `place` counts from 0."""

    campaign = models.ForeignKey(DialogueCampaign, on_delete=models.CASCADE, related_name="systems")
    place = models.PositiveSmallIntegerField()
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.RESTRICT, related_name="dialogues")
    name = models.CharField(max_length=120)

    class Meta:
        ordering = ["place"]
        constraints = [
            models.UniqueConstraint(fields=["campaign", "place"], name="dialogue_place_once"),
            models.UniqueConstraint(fields=["campaign", "checkpoint"], name="dialogue_system_once"),
        ]

    def __str__(self) -> str:
        return self.name


class Conversation(Stamped):
    """One person's conversation with two of a campaign's systems, `first` and `second` by place."""

    key = models.CharField(max_length=32, unique=True, default=conversation_key, editable=False)
    campaign = models.ForeignKey(
        DialogueCampaign, on_delete=models.CASCADE, related_name="conversations"
    )
    annotator = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    start_key = models.CharField(max_length=64, help_text="of the submit that began it")
    first = models.PositiveSmallIntegerField()
    second = models.PositiveSmallIntegerField()
    topic = models.CharField(max_length=200, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    problem = models.TextField(blank=True, help_text="as the person reported it")

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["annotator", "start_key"], name="conversation_started_once"
            ),
            models.UniqueConstraint(
                fields=["campaign", "annotator"],
                condition=Q(ended_at__isnull=True),
                name="conversation_open_once",
            ),
            models.CheckConstraint(
                condition=~Q(first=F("second")), name="conversation_of_two_systems"
            ),
        ]

    def __str__(self) -> str:
        return f"conversation {self.key[:8]}"


class DialogueTurn(Stamped):
    """What the person wrote, what both systems answered, and which answer continues the thread.

    `answers`: {"a": {"state", "text", "tokens", "seconds", "error"}, "b": …}, of the conversation's
    first and second system, once they are final; `earlier`: those of tries before. `choice` is in
    the same terms; `continued` the answer that stands in the thread, `is_drawn` where the choice
    was neither and a draw by the seed said which.
    """

    class State(models.TextChoices):
        ASKED = "asked", "asked"
        JUDGED = "judged", "judged"
        PASSED = "passed", "gone on without comparing"

    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="turns")
    annotator = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    number = models.PositiveSmallIntegerField()
    key = models.CharField(max_length=64, help_text="of the submit that wrote it")
    message = models.TextField()
    personal = ArrayField(
        models.CharField(max_length=12),
        default=list,
        blank=True,
        help_text="kinds of personal data that the person was warned of and sent",
    )
    seed = models.BigIntegerField()
    left_is = models.CharField(max_length=1, choices=_SIDES)
    attempt = models.PositiveSmallIntegerField(default=0)
    question = models.CharField(max_length=32, blank=True, help_text="id of what was asked")
    asked_at = models.DateTimeField(null=True, blank=True)
    error = models.CharField(max_length=300, blank=True, help_text="why nothing was asked")
    state = models.CharField(max_length=6, choices=State.choices, default=State.ASKED)
    answers = models.JSONField(default=dict, blank=True)
    earlier = models.JSONField(default=list, blank=True)
    names_itself = models.JSONField(
        default=dict, blank=True, help_text="{a | b: the words by which the answer names its model}"
    )
    choice = models.CharField(max_length=8, blank=True, choices=Choice.choices)
    continued = models.CharField(max_length=1, blank=True, choices=_SIDES)
    is_drawn = models.BooleanField(default=False)
    task = models.OneToOneField(
        Task, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    no_pair = models.CharField(
        max_length=300, blank=True, help_text="why the judged turn became no pair"
    )
    protocol_sha256 = models.CharField(max_length=64)
    judged_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["number"]
        constraints = [
            models.UniqueConstraint(
                fields=["conversation", "number"], name="dialogue_turn_number_once"
            ),
            models.UniqueConstraint(fields=["conversation", "key"], name="dialogue_turn_sent_once"),
            models.UniqueConstraint(
                fields=["conversation"],
                condition=Q(state="asked"),
                name="dialogue_turn_one_unjudged",
            ),
            models.CheckConstraint(
                condition=Q(state="asked", choice="", continued="")
                | Q(state="judged") & ~Q(choice="") & ~Q(continued="")
                | Q(state="passed", choice="") & ~Q(continued=""),
                name="dialogue_turn_of_its_state",
            ),
        ]

    def __str__(self) -> str:
        return f"turn {self.number} of {self.conversation_id}"
