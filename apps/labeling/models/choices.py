"""Words that votes, gold labels and decisions share."""

from django.db import models


class Choice(models.TextChoices):
    """A vote's choice, in canonical terms (not left and right)."""

    A = "a", "A is better"
    B = "b", "B is better"
    TIE = "tie", "Tie"
    BOTH_BAD = "both_bad", "Both are bad"
