"""Whether a set of preference pairs is fit to be trained on: leaks, wrong labels, drift, size.

Pairs come oriented: the first side of a row is the chosen one. What could tell chosen from rejected
is a signed difference (chosen − rejected), so a predictor without an intercept cannot know which
side is which but from it.
"""
