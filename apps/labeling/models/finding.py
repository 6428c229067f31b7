"""What the page of comparisons searches, and what people keep of it.

The words of a comparison lie in a row of their own: a comparison's row changes with every vote, and
its words never. They are written by `concord_comparisons_index` (migration 0003): by the insert
itself where it is short, else by a worker soon after, so that an import does not wait for them.
"""

from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVectorField
from django.db import models

from apps.accounts.models import Project, User
from apps.common.models import Named, Stamped
from apps.labeling.models.tasks import Comparison


class SearchDocument(models.Model):
    """The words of a prompt and its two answers in order, and what the pair is found by besides:
    lexemes that begin with `=`, as no word does (project, id, topic, models)."""

    comparison = models.OneToOneField(
        Comparison,
        on_delete=models.CASCADE,
        primary_key=True,
        related_name="words",
        db_constraint=False,  # a constraint of the migration, which deletes in the database
    )
    document = SearchVectorField()

    class Meta:
        indexes = [GinIndex(fields=["document"], name="search_words")]

    def __str__(self) -> str:
        return f"words of comparison {self.comparison_id}"


class SearchPending(models.Model):
    """Comparisons, by the first and the last of their ids, whose words are still to be written."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    first = models.BigIntegerField()
    last = models.BigIntegerField()

    def __str__(self) -> str:
        return f"comparisons {self.first} to {self.last}"


class Facet(models.Model):
    """A value that comparisons of a project can be filtered by, and between which days they came.

    The days hold all comparisons with the value, so a list in order of time begins where they are.
    """

    class Kind(models.TextChoices):
        BATCH = "batch", "Import"
        TOPIC = "topic", "Topic"
        MODEL = "model", "Model"

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+", db_index=False)
    kind = models.CharField(max_length=5, choices=Kind.choices)
    value = models.TextField()
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "kind", "value"], name="facet_once")
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.value}"


class SavedView(Stamped):
    """A filter of the comparisons under a name, for its owner or for everybody of the project."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+", db_index=False)
    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=60)
    query = models.CharField(max_length=2000, blank=True, help_text="of the page's address")
    is_shared = models.BooleanField(default=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "owner", "name"], name="view_name_once")
        ]

    def __str__(self) -> str:
        return self.name


class BulkAction(Named):
    """One action on many comparisons, as it was done; its key makes a second submit harmless."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    key = models.CharField(max_length=80)
    action = models.CharField(max_length=8)
    n_selected = models.PositiveIntegerField()
    n_changed = models.PositiveIntegerField()
    left_out = models.JSONField(default=dict, help_text="{why: how many}")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "key"], name="bulk_once")]

    def __str__(self) -> str:
        return f"{self.action} of {self.n_changed}"
