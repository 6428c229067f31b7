"""Words that votes, gold labels and decisions share."""

from django.db import models


class Choice(models.TextChoices):
    """A vote's choice, in canonical terms (not left and right)."""

    A = "a", "A is better"
    B = "b", "B is better"
    TIE = "tie", "Tie"
    BOTH_BAD = "both_bad", "Both are bad"


class DecideBy(models.TextChoices):
    """What turns votes into a decision: counting them by three rules, or a model of the voters."""

    VOTES = "votes", "Counted votes"
    ONE_COIN = "one_coin", "One-coin Dawid–Skene"
    DAWID_SKENE = "dawid_skene", "Dawid–Skene"
    MACE = "mace", "MACE"
