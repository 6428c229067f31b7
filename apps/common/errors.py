"""Errors a person or a program is told about: a stable code, a sentence, and where."""

from typing import Any


class DomainError(Exception):
    """Base of everything a service refuses.

    `code` is stable and machine-readable, `message` a sentence for people, `field` the form field
    or parameter, `row` the 1-based row of a bulk input.
    """

    status = 400
    code = "invalid"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        field: str | None = None,
        row: int | None = None,
        details: Any = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.code
        self.field = field
        self.row = row
        self.details = details


class Refused(DomainError):
    """The person may not do this."""

    status = 403
    code = "forbidden"


class Missing(DomainError):
    """There is no such thing, or not for this person."""

    status = 404
    code = "not_found"


class Conflict(DomainError):
    """The thing has changed meanwhile, or is in a state that does not allow this."""

    status = 409
    code = "conflict"


class Unprocessable(DomainError):
    """A field is larger than it may be, or holds what nobody may ask for here."""

    status = 422


class TooLarge(DomainError):
    """More was sent than this address accepts."""

    status = 413
    code = "too_large"


class TooMany(DomainError):
    """More at once, or more often, than one person may; `retry_after` seconds later it may work."""

    status = 429
    code = "too_many_requests"
    retry_after = 1


class Unavailable(DomainError):
    """What would have to do this does not answer, or has too much to do; asking later may work."""

    status = 503
    code = "unavailable"
    retry_after: int | None = 5


class StatementTooLong(Unavailable):
    """The database was given its time for a statement and did not end. No `Retry-After`: the same
    again would take as long, and programs that wait and ask again would keep the database busy."""

    code = "statement_too_long"
    retry_after = None


class Locked(Unavailable):
    """Somebody else changes the same rows, and has not ended in the time one waits for that."""

    code = "locked"
