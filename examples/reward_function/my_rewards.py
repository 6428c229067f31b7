"""A reward of Concord as a Python function: {"type": "function", "name": "brevity"}."""


def brevity(prompts, answers, rows, *, most=100):
    """1 for an empty answer, 0 for `most` words and more; None where the row says to ignore it."""
    return [
        None if row.get("ignore") else max(0.0, 1 - len(answer.split()) / most)
        for answer, row in zip(answers, rows, strict=True)
    ]
