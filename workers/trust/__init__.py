"""What an assessment says of a reward model: each module answers lines of `findings.LINES`.

Statistics are from `measures`; here are limits, verdicts and sentences. No torch.
"""
