"""Numbers that are none."""


class NonFinite(Exception):
    """A loss, gradient or probability that is NaN or infinite; the message is a noun for it. The
    weights are still those before it."""
