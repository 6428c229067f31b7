"""Which method to use now, and what to do next, from a project's own numbers.

Nothing here is measured: facts come in, each with its interval or as unknown, and advice goes out,
each piece with its reason and the number behind it. An unknown fact is asked for, never assumed: it
takes no branch. No figure of any published comparison of methods is used.
"""

from apps.snapshots.advice.choosing import advise
from apps.snapshots.advice.facts import Advice, Facts, Item, Kind, Method, Rules, Task, Unknown

__all__ = ["Advice", "Facts", "Item", "Kind", "Method", "Rules", "Task", "Unknown", "advise"]
