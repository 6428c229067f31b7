"""What goes wrong with an embedded server, in words for whoever started it."""


class EmbeddedServerError(RuntimeError):
    """An embedded server did not start; the text says which, why, and what to do."""
