"""The API of the images that texts name."""

from django.http import HttpRequest
from ninja import Field, File, Query, Router, Schema, Status
from ninja.files import UploadedFile

from apps.accounts.api_auth import needs
from apps.accounts.permissions import ADMIN, READERS, STAFF, project_for
from apps.common.errors import DomainError, Missing
from apps.labeling import selectors
from apps.labeling.services import images as services

router = Router(tags=["labeling"])
_FILE = File(None, description="required; PNG, JPEG or WebP")


class ImageOut(Schema):
    sha256: str = Field(description="of the image as it is stored, encoded again")
    media_type: str
    width: int
    height: int
    size: int = Field(description="bytes")
    name: str
    reference: str = Field(description="how a text names it; the words in brackets are yours")


@router.post(
    "/projects/{slug}/images",
    auth=needs("write"),
    response={201: ImageOut},
    summary="Store an image that texts may name",
)
def image_create(request: HttpRequest, slug: str, file: UploadedFile | None = _FILE) -> Status:
    """It is decoded under caps (20 MB, 40 megapixels) and encoded again without its metadata. The
    same file again gives the same image."""
    project, _ = project_for(request.user, slug, STAFF)
    if file is None:
        raise DomainError("Send the file as multipart/form-data.", field="file")
    if (file.size or 0) > services.MOST_BYTES:
        raise services.BadImage(f"has more than {services.MOST_BYTES:,} bytes")
    found = services.image_store(
        project=project, data=file.read(), name=file.name or "", user=request.user
    )
    return Status(201, found)


@router.delete(
    "/projects/{slug}/images/{sha256}",
    auth=needs("write"),
    response={204: None},
    summary="Delete an image",
)
def image_delete(request: HttpRequest, slug: str, sha256: str) -> Status:
    """An admin's. Texts that name it keep its alternative text; frozen datasets with it can no
    longer be downloaded in the form with images."""
    project, _ = project_for(request.user, slug, frozenset({ADMIN}))
    found = selectors.image_in(project=project.pk, sha256=sha256)
    if found is None:
        raise Missing("There is no such image in this project.")
    services.image_delete(image=found, by=request.user)
    return Status(204, None)


@router.get(
    "/projects/{slug}/images",
    auth=needs("read"),
    response=list[ImageOut],
    summary="The images of a project, newest first",
)
def images(
    request: HttpRequest,
    slug: str,
    limit: int = Query(100, ge=1, le=500),
    offset: int = Query(0, ge=0),
) -> list[ImageOut]:
    project, _ = project_for(request.user, slug, READERS)
    return list(selectors.images_of(project=project)[offset : offset + limit])  # type: ignore[arg-type] # ninja makes them
