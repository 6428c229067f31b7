"""What `apps.agreement` has learned of a project's voters, for deciding in a vote's transaction.

The rows here are written by the full fit in the background and read by every vote: one project row
with what holds for everybody, and on each `Annotator` the matrix of that person.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models

from apps.accounts.models import Project
from apps.labeling.models.choices import DecideBy


class Consensus(models.Model):
    """A project's fitted model of its voters, as of a vote.

    `priors[k]`: the probability of truth k; `confusion[4 k + c]`: of the vote c where k is true,
    for somebody whose own matrix is not known yet. Order of `measures.voting.CHOICES`. A choice the
    project does not offer has prior 0.
    """

    project = models.OneToOneField(
        Project, on_delete=models.CASCADE, primary_key=True, related_name="consensus"
    )
    method = models.CharField(max_length=12, choices=DecideBy.choices)
    priors = ArrayField(models.FloatField(), size=4)
    confusion = ArrayField(models.FloatField(), size=16)
    n_votes = models.IntegerField(default=0)
    last_vote_id = models.BigIntegerField(default=0)
    fitted_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.method} of {self.project_id}"
