"""Which end of which rank is the end of the run.

When one of several ranks ends early, the others fail for want of it: their collective operations
break off, or the launcher ends them. So no rank says how a failed run ended. Each leaves a note in
the run's folder, the launcher its list of statuses, and the supervisor, once all are dead, reads
which came first.
"""

import json
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from workers.contract.events import Failed, Fault
from workers.contract.wire import ContractError, build

RANKS_FILE = "ranks.json"  # of `workers.launch_ranks`
# torchrun lets ranks live for 30 s after the first has failed, then kills those that still do.
_BY_THE_LAUNCHER_S = 20
# What the libraries raise on ranks that another has left: by name, since torch is not imported
# here, and by text where the type is a bare RuntimeError.
_LEFT_ALONE = {"DistError", "DistBackendError", "DistNetworkError", "DistStoreError"}
_LEFT_ALONE_TEXT = ("gloo", "NCCL", "ProcessGroup", "Connection closed by peer", "TCPStore")


@dataclass(frozen=True)
class Note:
    """How one rank failed. `after_another`: for want of another rank, or told to end."""

    rank: int
    world: int
    at: float  # Unix seconds
    after_another: bool
    failure: Failed


@dataclass(frozen=True)
class Status:
    """How one rank ended, as the launcher saw it: a negative `status` is a signal."""

    rank: int
    status: int
    pid: int
    at: float  # whole Unix seconds, when the launcher noticed


def leave_note(
    folder: Path, failure: Failed, error: BaseException | None, *, rank: int, world: int
) -> None:
    """Say in `folder` how this rank failed; without an `error` it was told to end."""
    after_another = error is None or failure.kind == "terminated" or _left_alone(error)
    note = Note(rank, world, time.time(), after_another, failure)
    part = folder / f"rank-{rank}.json.part"
    part.write_text(json.dumps(asdict(note)))
    part.replace(part.with_suffix(""))


def end_of_ranks(folder: Path, *, out_of_memory: bool) -> Failed | None:
    """The failure of a run whose ranks are all dead; None when nobody knows anything.

    `out_of_memory`: the kernel has ended processes for want of memory meanwhile."""
    notes = sorted(_notes(folder), key=lambda note: note.at)
    statuses = _statuses(folder)
    world = max((note.world for note in notes), default=None)
    step = max((n.failure.step for n in notes if n.failure.step is not None), default=None)
    failure = (
        _killed(statuses, world, out_of_memory)
        or _raised(notes)
        or _died_by(signal.SIGABRT, statuses, world)  # also what follows another's end, on GPUs
        or _silent(statuses, notes, world)
        or _only_followed(notes)
    )
    return failure and replace(failure, step=failure.step if failure.step is not None else step)


def _killed(statuses: list[Status], world: int | None, out_of_memory: bool) -> Failed | None:
    for one in _soon(statuses):
        number = -one.status
        if number == signal.SIGKILL and out_of_memory:
            return Failed(
                "out_of_memory",
                Fault.MACHINE,
                f"The machine ran out of memory and the kernel ended {_name(one.rank, world)}.",
                retryable=True,
            )
        if number == signal.SIGKILL:
            return Failed(
                "rank_lost",
                Fault.MACHINE,
                f"{_name(one.rank, world)} was killed from outside (SIGKILL); the others could not "
                "go on without it.",
                retryable=True,
            )
    for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL):
        if (failure := _died_by(number, statuses, world)) is not None:
            return failure
    return None


def _died_by(number: signal.Signals, statuses: list[Status], world: int | None) -> Failed | None:
    for one in _soon(statuses):
        if -one.status == number:
            text = f"{_name(one.rank, world)} crashed ({number.name})."
            return Failed("crashed", Fault.MACHINE, text, retryable=True)
    return None


def _raised(notes: list[Note]) -> Failed | None:
    """The first error that no other rank had caused; said of its rank unless all met it."""
    own = [note for note in notes if not note.after_another]
    if not own:
        return None
    first = own[0]
    if len({(note.failure.kind, note.failure.message) for note in own}) == 1 < len(own):
        return first.failure
    message = f"{_name(first.rank, first.world)}: {first.failure.message}"
    return replace(first.failure, message=message)


def _silent(statuses: list[Status], notes: list[Note], world: int | None) -> Failed | None:
    spoke = {note.rank for note in notes}
    for one in _soon(statuses):
        if one.status > 0 and one.rank not in spoke:
            text = f"{_name(one.rank, world)} ended with status {one.status} and without a word."
            return Failed("exited", Fault.MACHINE, text, retryable=True)
    return None


def _only_followed(notes: list[Note]) -> Failed | None:
    """All were told to end, or lost each other and nobody saw the first one go."""
    if not notes:
        return None
    told = [note for note in notes if note.failure.kind == "terminated"]
    if len(told) == len(notes):
        return told[0].failure
    lost = next(note for note in notes if note.failure.kind != "terminated")
    text = f"The ranks lost each other. {_name(lost.rank, lost.world)}: {lost.failure.message}"
    return replace(
        lost.failure, kind="rank_lost", fault=Fault.MACHINE, message=text, retryable=True
    )


def _name(rank: int, world: int | None) -> str:
    return f"Rank {rank} of {world}" if world else f"Rank {rank}"


def _left_alone(error: BaseException) -> bool:
    chain: BaseException | None = error
    while chain is not None:
        if type(chain).__name__ in _LEFT_ALONE:
            return True
        if isinstance(chain, RuntimeError | ConnectionError) and any(
            text in str(chain) for text in _LEFT_ALONE_TEXT
        ):
            return True
        chain = chain.__cause__ or chain.__context__
    return False


def _soon(statuses: list[Status]) -> Iterator[Status]:
    """Those that ended before the launcher may have ended them by force."""
    if statuses:
        first = min(one.at for one in statuses)
        yield from (one for one in statuses if one.at - first < _BY_THE_LAUNCHER_S)


def _notes(folder: Path) -> Iterator[Note]:
    for path in folder.glob("rank-*.json"):
        try:
            note = build(Note, json.loads(path.read_text()), where=path.name)
            yield replace(note, failure=build(Failed, note.failure, where=path.name))
        except (ValueError, ContractError):
            continue  # its disk was full


def _statuses(folder: Path) -> list[Status]:
    try:
        said = json.loads((folder / RANKS_FILE).read_text())
        return [build(Status, one, where=RANKS_FILE) for one in said]
    except (FileNotFoundError, ValueError, ContractError):
        return []
