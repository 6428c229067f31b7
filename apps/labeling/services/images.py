"""Images on their way in: decoded under caps, encoded again without metadata, stored by hash.

Read are PNG, JPEG and WebP. What a camera wrote beside the picture (place, time, device) is gone,
and so is anything that hides behind the pixels; the picture is turned as its orientation says.
"""

import base64
import binascii
import hashlib
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from django.db import transaction
from PIL import Image, ImageOps, UnidentifiedImageError

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import DomainError
from apps.labeling.formats.images import DATA_URL
from apps.labeling.models import StoredImage
from apps.labeling.services.imports import store
from measures.messages import images_in

MOST_BYTES = 20_000_000  # of one file
MOST_PIXELS = 40_000_000
_FORMATS = {
    "PNG": StoredImage.MediaType.PNG,
    "JPEG": StoredImage.MediaType.JPEG,
    "WEBP": StoredImage.MediaType.WEBP,
}


class BadImage(DomainError):
    """The text says what is wrong; the field is `image`."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="bad_image", field="image")


@dataclass(frozen=True, slots=True)
class Checked:
    """An image that may be stored."""

    content: bytes
    media_type: str
    width: int
    height: int
    look: int

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def image_checked(data: bytes) -> Checked:
    """Raises BadImage. The size is known from the header, before a pixel is decoded."""
    if len(data) > MOST_BYTES:
        raise BadImage(f"has {len(data):,} bytes; at most {MOST_BYTES:,}")
    try:
        with Image.open(io.BytesIO(data), formats=list(_FORMATS)) as image:
            width, height = image.size
            if width * height > MOST_PIXELS:
                raise BadImage(f"has {width:,} × {height:,} pixels; at most {MOST_PIXELS:,} in all")
            if getattr(image, "n_frames", 1) > 1:
                raise BadImage("moves; only images that stand still are taken")
            kind = str(image.format)
            image.load()
            plain = ImageOps.exif_transpose(image)
            content, plain = _encoded(plain, kind)
    except BadImage:
        raise
    except UnidentifiedImageError:
        raise BadImage("is no PNG, JPEG or WebP") from None
    except Image.DecompressionBombError:
        raise BadImage(f"has far more than {MOST_PIXELS:,} pixels") from None
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise BadImage(f"is damaged ({str(error)[:80]})") from None
    return Checked(content, _FORMATS[kind].value, *plain.size, look_of(plain))


def _encoded(image: Image.Image, kind: str) -> tuple[bytes, Image.Image]:
    """The pixels alone, in the format they came in."""
    wanted = "RGB" if kind == "JPEG" else "RGBA" if _has_alpha(image) else "RGB"
    plain = Image.new(wanted, image.size)
    plain.paste(image.convert(wanted))
    written = io.BytesIO()
    quality: dict[str, Any] = {} if kind == "PNG" else {"quality": 92}
    plain.save(written, kind, **quality)
    return written.getvalue(), plain


def _has_alpha(image: Image.Image) -> bool:
    return "A" in image.getbands() or "transparency" in image.info


def look_of(image: Image.Image) -> int:
    """Difference hash (Krawetz 2013, "Kind of Like That"): whether each of 8 × 8 places is brighter
    than the next one to its right, as a signed number of 64 bits."""
    small = image.convert("L").resize((9, 8), Image.Resampling.LANCZOS)
    grey = np.asarray(small, dtype=np.int16)
    bits = np.packbits((grey[:, 1:] > grey[:, :-1]).reshape(-1)).tobytes()
    return int.from_bytes(bits, "big", signed=True)


def path_of(project: str, sha256: str) -> str:
    return f"images/{project}/{sha256}"


def image_store(
    *, project: Project, data: bytes, name: str = "", user: User | None = None
) -> StoredImage:
    """Stored once; the same bytes again give the same row. Raises BadImage."""
    given = hashlib.sha256(data).hexdigest()
    known = StoredImage.objects.filter(project=project, given_sha256=given).first()
    if known is not None:
        return known
    image = image_checked(data)
    sha256 = image.sha256
    store().write_bytes(path_of(project.pk, sha256), image.content)
    found, _ = StoredImage.objects.get_or_create(
        project=project,
        sha256=sha256,
        defaults={
            "given_sha256": given,
            "media_type": image.media_type,
            "width": image.width,
            "height": image.height,
            "size": len(image.content),
            "look": image.look,
            "name": name[:120],
            "added_by": user,
        },
    )
    return found


def image_delete(*, image: StoredImage, by: User) -> None:
    """What names it keeps its alternative text; the same file stored again is shown there again."""
    with transaction.atomic():
        audit_record(
            action="image.deleted",
            actor=by,
            project=image.project,
            subject=image.sha256,
            details={"name": image.name or image.sha256[:12], "bytes": image.size},
        )
        project, sha256 = image.project_id, image.sha256
        image.delete()
        transaction.on_commit(lambda: _file_drop(project, sha256))


def _file_drop(project: str, sha256: str) -> None:
    """Unless somebody stored the same image again meanwhile."""
    if not StoredImage.objects.filter(project=project, sha256=sha256).exists():
        store().delete_file(path_of(project, sha256))


def images_delete(project: Project) -> None:
    """With their project; the files once that is sure."""
    folder = f"images/{project.pk}"
    transaction.on_commit(lambda: store().delete_tree(folder))


def image_content(image: StoredImage) -> bytes:
    return store().read_bytes(path_of(image.project_id, image.sha256), sha256=image.sha256)


class RowImages:
    """The images of imported rows: those that a row brings along (data URLs, or a column `images`
    beside messages with image parts) are stored, and those that it names must be there."""

    def __init__(self, project: Project, *, writes: bool) -> None:
        self.project, self.writes = project, writes
        self._known: dict[str, bool] = {}

    def taken(self, text: str) -> str:
        """The text with its data URLs replaced by references. Raises BadImage."""
        if "](data:image/" not in text:
            return text
        return DATA_URL.sub(lambda found: self._stored(found[1], found[2]), text)

    def _stored(self, words: str, encoded: str) -> str:
        try:
            data = base64.b64decode(re.sub(r"\s", "", encoded), validate=True)
        except (binascii.Error, ValueError):
            raise BadImage("is no base64") from None
        if self.writes:
            sha256 = image_store(project=self.project, data=data, name=words).sha256
        else:
            sha256 = image_checked(data).sha256
        self._known[sha256] = True
        return f"![{words or 'image'}](image:{sha256})"

    def content(self, value: Any) -> Any:
        """A text or messages with the images that they bring along taken."""
        if isinstance(value, str):
            return self.taken(value)
        if isinstance(value, Sequence):
            return [
                {**entry, "content": self.taken(entry["content"])}
                if isinstance(entry, Mapping) and isinstance(entry.get("content"), str)
                else entry
                for entry in value
            ]
        return value

    def unknown(self, *conversations: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """The images that messages name and this project does not have."""
        for messages in conversations:
            for sha256 in images_in(messages):
                if sha256 not in self._known:
                    held = StoredImage.objects.filter(project=self.project, sha256=sha256)
                    self._known[sha256] = held.exists()
                if not self._known[sha256]:
                    yield sha256
