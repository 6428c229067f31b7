"""What goes wrong, with the server's own words and codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concord.types import Run


class ConcordError(Exception):
    """The server refused a request.

    status: of HTTP. code: stable, for programs (`lease_lost`, `rows_invalid`, …). message: a
    sentence for people. field, row: what is at fault, row counting from 1. details: more, where
    there is more (each bad row of an import). errors: every error of a body that did not validate.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str,
        field: str | None = None,
        row: int | None = None,
        details: Any = None,
        errors: tuple[Mapping[str, Any], ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.field = field
        self.row = row
        self.details = details
        self.errors = errors

    def __str__(self) -> str:
        where = [f"field {self.field}"] if self.field else []
        where += [f"row {self.row}"] if self.row is not None else []
        tail = f" ({', '.join(where)})" if where else ""
        status = f"{self.status} " if self.status >= 400 else ""
        return f"{status}{self.code}: {self.message}{tail}"


class Unreachable(ConcordError):
    """No answer came: refused, reset or timed out, also when tried again. `status` is 0.

    Whether the server has acted is not known.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, status=0, code="unreachable")


class RunFailed(ConcordError):
    """A run that was waited for has failed or was cancelled; `run` is its record."""

    def __init__(self, run: Run) -> None:
        words = run.failure_message or f"the run is {run.state}"
        super().__init__(
            f"{run.kind} '{run.name}': {words}", status=200, code=run.failure_kind or run.state
        )
        self.run = run


def error_from(status: int, body: Any) -> ConcordError:
    """The error an answer stands for; a body that is not the API's own is kept in `details`."""
    if not isinstance(body, Mapping) or "code" not in body:
        return ConcordError(
            "The answer did not come from Concord's API.",
            status=status,
            code="http_error",
            details=body,
        )
    return ConcordError(
        str(body.get("message", "")),
        status=status,
        code=str(body["code"]),
        field=body.get("field"),
        row=body.get("row"),
        details=body.get("details"),
        errors=tuple(body.get("errors") or ()),
    )
