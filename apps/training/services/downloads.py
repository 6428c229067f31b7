"""A model taken out: a tar that is made while it is sent, from any byte on; or a run that uploads
it to a hub."""

import hashlib
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass

from django.core.cache import cache

from apps.accounts.models import User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError, Missing, Unavailable
from apps.snapshots.storage import artifact_store
from apps.training.formats import folder_name, purpose_of, readme_text
from apps.training.models import Checkpoint, Run
from apps.training.selectors.cards import ModelCard, model_card
from apps.training.services.kinds import MODELS
from apps.training.services.launching import run_launch
from workers.artifacts import (
    ADAPTER,
    CARD,
    MANIFEST,
    MERGED,
    PARTS,
    ArtifactError,
    ArtifactMissing,
    Store,
    StoreUnreachable,
    has_adapter,
    model_files,
    papers,
)
from workers.contract.wire import QUEUE_CPU

ENSEMBLE = "ensemble.json"
_DAY_S = 86_400
_BLOCK = 1 << 20
_END = tarfile.NUL * (2 * tarfile.BLOCKSIZE)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of the artifact store under the name it has in a download."""

    name: str
    uri: str
    sha256: str


def manifest_of(model: Checkpoint) -> dict[str, str]:
    """{name: SHA-256} of everything in a checkpoint, which never changes. Raises `DomainError`."""
    key = f"manifest:{model.sha256}"
    found: dict[str, str] | None = cache.get(key)
    if found is None:
        try:
            text = artifact_store().read_bytes(f"{model.uri}/{MANIFEST}", sha256=model.sha256)
        except ArtifactError as error:
            raise _refusal(error) from error
        found = json.loads(text)
        cache.set(key, found, timeout=_DAY_S)
    return found


def parts_of(model: Checkpoint) -> list[str]:
    """What can be downloaded of a model: nothing of what is none, or was deleted."""
    if model.run.kind not in MODELS:
        return []
    try:
        names = manifest_of(model)
    except DomainError:
        return []
    return [MERGED, ADAPTER] if has_adapter(names) and ENSEMBLE not in names else [MERGED]


def member_of(model: Checkpoint) -> str:
    """The first member of an ensemble; empty of a single model."""
    names = manifest_of(model)
    inside = (name.partition("/")[0] for name in sorted(names) if name.endswith("/config.json"))
    return next(inside, "") if ENSEMBLE in names else ""


def model_contents(card: ModelCard, part: str) -> list[StoredFile]:
    """The files of a download but for its card; with the licence of the model it began as. Raises
    `DomainError` (no_such_part) for what there is not."""
    model = card.model
    if part not in PARTS or part not in parts_of(model):
        raise Missing(
            f"This model has no part '{part}': its files are gone, or it was trained without "
            "adapters.",
            code="no_such_part",
            field="part",
        )
    manifest = manifest_of(model)
    files = {
        name: StoredFile(name, f"{model.uri}/{source}", manifest[source])
        for name, source in model_files(manifest, part).items()
    }
    for before in card.history[-1:]:
        try:
            theirs = manifest_of(before)
        except DomainError:
            continue  # it says so on its own page
        for name in papers(theirs):
            files.setdefault(name, StoredFile(name, f"{before.uri}/{name}", theirs[name]))
    return [StoredFile(name, one.uri, one.sha256) for name, one in sorted(files.items())]


@dataclass(frozen=True, slots=True)
class Archive:
    """Pieces of a tar: bytes, or a file with its size. It is the same each time it is asked for
    while the model's card is, which `etag` says."""

    name: str
    pieces: list[tuple[bytes | StoredFile, int]]
    etag: str
    store: Store

    @property
    def size(self) -> int:
        return sum(size for _, size in self.pieces)

    def chunks(self, start: int = 0) -> Iterator[bytes]:
        """From a byte on. A file that turns out to be another than was saved ends it with an
        `ArtifactError`, before the length that was announced."""
        for piece, size in self.pieces:
            if start >= size:
                start -= size
                continue
            if isinstance(piece, bytes):
                yield piece[start:]
            else:
                yield from self._file(piece, start)
            start = 0

    def _file(self, file: StoredFile, start: int) -> Iterator[bytes]:
        digest = hashlib.sha256()
        with self.store.open(file.uri) as source:
            source.seek(start)
            while block := source.read(_BLOCK):
                digest.update(block)
                yield block
        if not start and digest.hexdigest() != file.sha256:
            raise ArtifactError(f"artifact '{file.uri}' is damaged: wrong content hash")


def model_archive(*, model: Checkpoint, part: str = MERGED, user: User) -> Archive:
    """A model to send to `user`; the audit log says so. Raises `DomainError` before the first byte
    where a file is missing."""
    card, store = model_card(model), artifact_store()
    files = model_contents(card, part)
    folder = folder_name(model, part)
    readme = readme_text(card, part, member=member_of(model)).encode()
    saved = int(model.created_at.timestamp())
    pieces = _entry(f"{folder}/{CARD}", len(readme), saved, readme)
    try:
        for file in files:
            pieces += _entry(f"{folder}/{file.name}", store.size(file.uri), saved, file)
    except ArtifactError as error:
        raise _refusal(error) from error
    pieces.append((_END, len(_END)))
    audit_record(
        action="model.downloaded",
        actor=user,
        project=model.project,
        subject=model.pk,
        details={"part": part, "kind": purpose_of(model.run)},
    )
    etag = hashlib.sha256(readme + json.dumps([one.sha256 for one in files]).encode()).hexdigest()
    return Archive(f"{folder}.tar", pieces, f'"{etag[:32]}"', store)


def model_push(
    *,
    model: Checkpoint,
    repo: str,
    part: str = MERGED,
    private: bool = True,
    user: User,
    idempotency_key: str = "",
) -> Run:
    """A run that uploads what a download holds, where a worker has the token of a hub. Raises
    `DomainError`."""
    card = model_card(model)
    model_contents(card, part)
    after = f", step {model.step}: push"
    config = {
        "repo": repo.strip(),
        "part": part,
        "private": private,
        "card": readme_text(card, part, member=member_of(model)),
    }
    return run_launch(
        project=model.project,
        kind=Run.Kind.PUSH,
        name=f"{model.run.name[: 120 - len(after)]}{after}",
        config=config,
        inputs={"model": model, **({"base": card.history[-1]} if card.history else {})},
        queue=model.run.queue or QUEUE_CPU,
        user=user,
        idempotency_key=idempotency_key,
    )


def _entry(
    name: str, size: int, saved: int, content: bytes | StoredFile
) -> list[tuple[bytes | StoredFile, int]]:
    info = tarfile.TarInfo(name)
    info.size, info.mtime = size, saved
    head, rest = info.tobuf(tarfile.PAX_FORMAT), -size % tarfile.BLOCKSIZE
    return [(head, len(head)), (content, size), (tarfile.NUL * rest, rest)]


def _refusal(error: ArtifactError) -> DomainError:
    if isinstance(error, StoreUnreachable):
        return Unavailable(f"{error}.")
    if isinstance(error, ArtifactMissing):
        return Missing("The model's files are not in the artifact store any more.", code="gone")
    return Conflict(
        f"The files are not what was saved: {error}.", code="damaged", details=str(error)
    )
