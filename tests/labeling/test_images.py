"""Images in messages: decoded under caps, without metadata, stored once, shown and sent on."""

import base64
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import datasets
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from PIL import Image

from apps.accounts.models import AuditEvent, Membership, Project, Role, User
from apps.accounts.services import project_archive, project_delete
from apps.labeling import services
from apps.labeling.formats import layouts
from apps.labeling.models import Comparison, Prompt, Response, StoredImage
from apps.labeling.rendering import text_html
from apps.labeling.services import RowsRefused
from apps.labeling.services.images import BadImage, image_checked, image_content, image_store
from apps.snapshots.assembling.gate import LeakFound
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import SnapshotRecipe
from apps.snapshots.services import freezing
from measures.messages import images_in
from tests.snapshots.conftest import crowd_make
from tests.snapshots.test_exports import content as exported
from workers.artifacts import ArtifactError
from workers.contract.events import RecipeError
from workers.data.snapshot import read_preferences

pytestmark = pytest.mark.django_db


def picture(seed: int = 0, size: tuple[int, int] = (64, 48)) -> Image.Image:
    made = Image.new("RGB", size)
    width, height = size
    made.putdata(
        [
            ((x * (seed + 3)) % 256, (y * (2 * seed + 5)) % 256, (x * y * (seed + 1)) % 256)
            for y in range(height)
            for x in range(width)
        ]
    )
    return made


def encoded(image: Image.Image, kind: str = "PNG", **more: Any) -> bytes:
    written = io.BytesIO()
    image.save(written, kind, **more)
    return written.getvalue()


def data_url(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_each_kind_is_decoded_and_encoded_again(project: Project, kind: str) -> None:
    stored = image_store(project=project, data=encoded(picture(), kind), name="cat.png")
    assert stored.media_type == f"image/{kind.lower()}"
    assert (stored.width, stored.height) == (64, 48)
    with Image.open(io.BytesIO(image_content(stored))) as again:
        assert again.format == kind
        assert again.size == (64, 48)
    assert stored.reference == f"![cat](image:{stored.sha256})"
    same = image_store(project=project, data=encoded(picture(), kind))
    assert same.pk == stored.pk


def test_place_time_and_device_are_gone_and_the_picture_is_turned(project: Project) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90°
    exif[0x010F] = "A camera"
    exif.get_ifd(0x8825)[2] = (52.0, 31.0, 12.0)
    data = encoded(picture(), "JPEG", exif=exif, comment=b"taken at home")
    assert b"A camera" in data
    stored = image_store(project=project, data=data)
    content = image_content(stored)
    assert b"A camera" not in content
    assert b"taken at home" not in content
    with Image.open(io.BytesIO(content)) as again:
        assert not again.getexif()
        assert again.size == (48, 64)


def test_text_chunks_of_a_png_are_gone(project: Project) -> None:
    from PIL.PngImagePlugin import PngInfo

    about = PngInfo()
    about.add_text("Comment", "who took it")
    stored = image_store(project=project, data=encoded(picture(), pnginfo=about))
    assert b"who took it" not in image_content(stored)


def test_a_bomb_of_sixty_megapixels_is_refused_by_name_before_it_is_decoded() -> None:
    bomb = encoded(Image.new("1", (10_000, 6_000)))
    assert len(bomb) < 100_000
    with pytest.raises(BadImage, match=r"has 10,000 × 6,000 pixels; at most 40,000,000") as refused:
        image_checked(bomb)
    assert refused.value.field == "image"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GIF89a" + b"\0" * 40, "is no PNG, JPEG or WebP"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>", "is no PNG, JPEG or WebP"),
        (encoded(picture())[:200], "is damaged"),
        (b"", "is no PNG"),
        (b"\x89PNG\r\n\x1a\n" + b"x" * 20_000_001, "has 20,000,009 bytes"),
    ],
)
def test_what_is_no_image_is_named(data: bytes, words: str) -> None:
    with pytest.raises(BadImage, match=words):
        image_checked(data)


def test_moving_images_are_refused() -> None:
    frames = [picture(n) for n in range(2)]
    data = encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:])
    with pytest.raises(BadImage, match="stand still"):
        image_checked(data)


# --- in texts -------------------------------------------------------------------------------------


def rows_of(*prompts: str) -> list[dict[str, Any]]:
    return [
        {"prompt": prompt, "response_a": f"A cat {n}.", "response_b": f"A dog {n}."}
        for n, prompt in enumerate(prompts)
    ]


def test_a_row_brings_its_image_along(project: Project) -> None:
    message = {
        "role": "user",
        "content": f"What is this? ![two cats]({data_url(encoded(picture()))})",
    }
    rows = rows_of("x")
    rows[0]["prompt"] = [message]
    services.comparisons_import(project=project, rows=rows, dry_run=True)
    assert not StoredImage.objects.exists()
    services.comparisons_import(project=project, rows=rows)
    stored = StoredImage.objects.get()
    prompt = Prompt.objects.get()
    assert prompt.messages[0]["content"] == f"What is this? ![two cats](image:{stored.sha256})"
    assert prompt.group_key == f"image {stored.sha256}"
    again = services.comparisons_import(project=project, rows=rows)
    assert again.n_created == 0


def test_a_bad_image_refuses_its_row_by_field(project: Project) -> None:
    rows = rows_of("x", "y")
    rows[1]["response_a"] = f"See ![x]({data_url(b'GIF89a')})"
    with pytest.raises(RowsRefused) as refused:
        services.comparisons_import(project=project, rows=rows)
    (problem,) = refused.value.details
    assert (problem["row"], problem["field"]) == (2, "response_a")
    assert "is no PNG" in problem["message"]
    assert not Comparison.objects.exists()


def test_an_image_of_another_project_is_not_there(project: Project, emil: User) -> None:
    other = Project.objects.create(name="Other", slug="other")
    theirs = image_store(project=other, data=encoded(picture()))
    with pytest.raises(RowsRefused) as refused:
        services.comparisons_import(project=project, rows=rows_of(f"What? {theirs.reference}"))
    assert "does not have" in refused.value.details[0]["message"]


def test_only_our_images_are_shown_and_only_to_members(
    project: Project, ana: User, client: Client
) -> None:
    stored = image_store(project=project, data=encoded(picture()), name='a "<b>".png')
    html = text_html(f"See {stored.reference} and ![x](https://example.org/x.png).")
    assert html.count("<img") == 1
    assert f'src="/images/{stored.sha256}/"' in html
    assert "example.org/x.png" not in html.replace('href="https://example.org/x.png"', "")
    assert "<b>" not in html
    hostile = text_html('<img src="/images/' + "a" * 64 + '/" onerror="x()">')
    assert "<img" not in hostile
    address = f"/images/{stored.sha256}/"
    client.force_login(ana)
    sent = client.get(address)
    assert sent.content == image_content(stored)
    assert sent["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in sent["Content-Security-Policy"]
    outsider = User.objects.create_user("outsider", password="x")
    client.force_login(outsider)
    assert client.get(address).status_code == 404
    client.force_login(ana)
    assert client.get(f"/images/{'0' * 64}/").status_code == 404
    assert client.get("/images/none/").status_code == 404


def test_files_are_added_on_a_page_and_bad_ones_are_named(
    project: Project, emil: User, client: Client
) -> None:
    client.force_login(emil)
    files = [
        SimpleUploadedFile("good.png", encoded(picture())),
        SimpleUploadedFile("bad.svg", b"<svg/>"),
    ]
    page = client.post(f"/p/{project.slug}/images/", {"files": files}, follow=True)
    text = page.content.decode()
    assert "1 image is stored" in text
    assert "“bad.svg” is no PNG, JPEG or WebP." in text
    stored = StoredImage.objects.get()
    assert (stored.name, stored.added_by) == ("good.png", emil)
    assert stored.reference in text


def test_annotators_see_images_but_add_none(project: Project, ana: User, client: Client) -> None:
    client.force_login(ana)
    assert client.get(f"/p/{project.slug}/images/").status_code == 403


def test_images_go_with_their_project(
    project: Project, ada: User, django_capture_on_commit_callbacks: Any
) -> None:
    stored = image_store(project=project, data=encoded(picture()))
    project_archive(project=project, by=ada)
    with django_capture_on_commit_callbacks(execute=True):
        project_delete(project=project, typed=project.name, by=ada)
    assert not StoredImage.objects.exists()
    with pytest.raises(ArtifactError):
        image_content(stored)


def test_an_admin_deletes_an_image_and_is_told_where_it_is_shown(
    project: Project, ada: User, emil: User, client: Client, django_capture_on_commit_callbacks: Any
) -> None:
    stored = image_store(project=project, data=encoded(picture()), name="cat.png")
    other = image_store(project=project, data=encoded(picture(2)))
    rows = [
        {"prompt": f"What? {stored.reference}", "response_a": "A cat.", "response_b": f"{n} cats."}
        for n in range(2, 4)
    ]
    services.comparisons_import(project=project, rows=rows)
    services.guideline_publish(project=project, body=f"Like this: {stored.reference}", by=ada)
    address = f"/p/{project.slug}/images/{stored.sha256}/delete/"
    client.force_login(emil)
    assert client.post(address).status_code == 403
    assert address not in client.get(f"/p/{project.slug}/images/").content.decode()
    client.force_login(ada)
    assert address in client.get(f"/p/{project.slug}/images/").content.decode()
    page = client.get(address).content.decode()
    assert "It is shown in 1 prompt, 1 version of the guidelines." in page
    with django_capture_on_commit_callbacks(execute=True):
        assert client.post(address).status_code == 302
    assert list(StoredImage.objects.all()) == [other]
    with pytest.raises(ArtifactError):
        image_content(stored)
    assert client.get(f"/images/{stored.sha256}/").status_code == 404
    assert AuditEvent.objects.get(action="image.deleted").details["name"] == "cat.png"
    again = image_store(project=project, data=encoded(picture()))
    assert again.sha256 == stored.sha256
    assert image_content(again)
    assert (
        "No prompt, answer or guideline"
        in client.get(f"/p/{project.slug}/images/{other.sha256}/delete/").content.decode()
    )


# --- datasets -------------------------------------------------------------------------------------


def with_images(project: Project, pictures: list[Image.Image]) -> list[Comparison]:
    """Debates whose prompts show one of the pictures each."""
    crowd = crowd_make(project, debates=len(pictures))
    for number, image in enumerate(pictures):
        stored = image_store(project=project, data=encoded(image))
        asked = [{"role": "user", "content": f"Argue for this. {stored.reference}"}]
        Prompt.objects.filter(project=project, group_key=f"debate-{number:02}").update(brief=asked)
    return crowd


RECIPE = SnapshotRecipe(
    least_votes=2, least_agreeing=2, splits={"train": 0.6, "dev": 0.4}, seed="seed-2"
)


def frozen(project: Project, emil: User) -> Snapshot:
    return freezing.snapshot_freeze(project=project, name="seen", recipe=RECIPE, user=emil)


def test_a_dataset_with_images_is_read_by_datasets_as_trl_wants_it(
    project: Project, emil: User, tmp_path: Path
) -> None:
    with_images(project, [picture(n) for n in range(10)])
    snapshot = frozen(project, emil)
    sent = exported(snapshot, shape="images", form="zip")
    with zipfile.ZipFile(io.BytesIO(sent)) as archive:
        archive.extractall(tmp_path / "zip")
    (folder,) = (tmp_path / "zip").iterdir()
    loaded = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
    row = loaded["train"][0]
    assert [one["type"] for one in row["prompt"][0]["content"]] == ["text", "image"]
    assert row["images"][0].size == (64, 48)
    assert row["chosen"][0]["role"] == "assistant"
    assert isinstance(row["chosen"][0]["content"], str)
    plain = json.loads(exported(snapshot, split="train").splitlines()[0])
    assert "(image:" in plain["prompt"][0]["content"]


def test_trls_dpo_collator_takes_the_rows(project: Project, emil: User, tmp_path: Path) -> None:
    from trl.data_utils import prepare_multimodal_messages

    with_images(project, [picture(n) for n in range(10)])
    sent = exported(frozen(project, emil), shape="images", form="zip")
    with zipfile.ZipFile(io.BytesIO(sent)) as archive:
        archive.extractall(tmp_path / "zip")
    (folder,) = (tmp_path / "zip").iterdir()
    loaded = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
    row = loaded["train"][0]
    made = prepare_multimodal_messages(row["prompt"], images=row["images"])
    assert made[0]["content"][1]["image"].size == (64, 48)


def test_recipes_that_read_text_refuse_images_by_name(
    project: Project, emil: User, tmp_path: Path
) -> None:
    with_images(project, [picture(n) for n in range(10)])
    lines = exported(frozen(project, emil), split="train")
    (tmp_path / "train.jsonl").write_bytes(lines)
    with pytest.raises(RecipeError, match="holds an image; this recipe reads text alone"):
        read_preferences(tmp_path)


def test_images_that_look_alike_in_two_splits_stop_the_freeze(project: Project, emil: User) -> None:
    """The same picture, smaller and encoded again, under a prompt of another group."""
    pictures = [picture(n) for n in range(10)]
    pictures[7] = pictures[2].resize((48, 36)).resize((64, 48))
    pictures[8] = pictures[2].resize((60, 45))
    pictures[9] = pictures[2].resize((80, 60))
    with_images(project, pictures)
    with pytest.raises(LeakFound, match="images that look alike stand in both"):
        frozen(project, emil)


def test_one_question_about_two_images_is_two_questions(project: Project, emil: User) -> None:
    """Before, their alternative texts alone told them apart."""
    with_images(project, [picture(n) for n in range(10)])
    assert frozen(project, emil).state == "frozen"


def test_an_answer_with_an_image_is_not_sent_to_trainers_of_images(
    project: Project, emil: User
) -> None:
    crowd = with_images(project, [picture(n) for n in range(10)])
    stored = StoredImage.objects.first()
    assert stored
    answer = crowd[0].response_b
    said = [{"role": "assistant", "content": f"{answer.messages[0]['content']} {stored.reference}"}]
    Response.objects.filter(pk=answer.pk).update(brief=said)
    Membership.objects.get_or_create(project=project, user=emil, defaults={"role": Role.ENGINEER})
    from apps.common.errors import DomainError

    snapshot = frozen(project, emil)
    with pytest.raises(DomainError, match="in prompts alone"):
        exported(snapshot, shape="images", form="zip")


# A column of images beside the messages, as TRL and `datasets` have it.

BLUE, RED = encoded(picture(1)), encoded(picture(2))
ASKED = [{"type": "image"}, {"type": "text", "text": "Which is it?"}]
ANSWERS = {
    "chosen": [{"role": "assistant", "content": "Blue."}],
    "rejected": [{"role": "assistant", "content": "Red."}],
}
SEEN = datasets.Sequence(datasets.Image())


def imported(project: Project, path: Path) -> None:
    read = layouts.rows(path=str(path), chosen={}, columns=500, decoded=10**9, scratch="-")
    next(read)
    found = list(read)
    assert [row.get("fault") for row in found] == [None] * len(found)
    services.comparisons_import(project=project, rows=[row["comparison"] for row in found])


def test_an_export_with_images_comes_in_again_as_it_was(
    project: Project, emil: User, tmp_path: Path
) -> None:
    with_images(project, [picture(n) for n in range(10)])
    sent = exported(frozen(project, emil), shape="images", form="parquet", split="train")
    (tmp_path / "train.parquet").write_bytes(sent)
    other = Project.objects.create(slug="other", name="Other")
    imported(other, tmp_path / "train.parquet")
    mine = Prompt.objects.filter(project=project).values_list("brief", flat=True)
    theirs = Prompt.objects.filter(project=other)
    assert theirs.exists()
    shown = [hashes for one in mine if (hashes := tuple(images_in(one)))]
    for prompt in theirs:
        assert tuple(images_in(prompt.messages)) in shown
        assert "images" not in Comparison.objects.filter(prompt=prompt)[0].metadata


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": [{"role": "user", "content": ASKED}], **ANSWERS},
        {name: [{"role": "user", "content": ASKED}, *answer] for name, answer in ANSWERS.items()},
        {"prompt": "<image>\nWhich is it?", "chosen": "Blue.", "rejected": "Red."},
        {"prompt": "Which is it?", "chosen": "Blue.", "rejected": "Red."},
        {"prompt": [{"role": "user", "content": "Which is it?"}], **ANSWERS},
    ],
)
def test_a_column_of_images_goes_where_the_messages_show_them(
    project: Project, tmp_path: Path, row: dict[str, Any]
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({**row, "images": [data_url(BLUE)]}) + "\n")
    imported(project, path)
    (prompt,) = Prompt.objects.filter(project=project)
    (stored,) = StoredImage.objects.filter(project=project)
    assert [one["role"] for one in prompt.messages] == ["user"]
    assert prompt.messages[0]["content"].split() == [
        f"![image](image:{stored.sha256})",
        *["Which", "is", "it?"],
    ]


def test_images_are_read_as_datasets_writes_them(project: Project, tmp_path: Path) -> None:
    two = [{"type": "image"}, *ASKED]
    held = datasets.Dataset.from_list(
        [
            {
                "prompt": [{"role": "user", "content": two}],
                **ANSWERS,
                "images": [{"bytes": BLUE, "path": None}, {"bytes": RED, "path": "red.png"}],
            }
        ]
    ).cast_column("images", SEEN)
    held.to_parquet(tmp_path / "rows.parquet")
    imported(project, tmp_path / "rows.parquet")
    (prompt,) = Prompt.objects.filter(project=project)
    wanted = [image_store(project=project, data=one).sha256 for one in (BLUE, RED)]
    assert list(images_in(prompt.messages)) == wanted


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"prompt": [{"role": "user", "content": [*ASKED, *ASKED]}]}, "fewer images"),
        ({"prompt": "<image> <image> Which?"}, "fewer images"),
        ({"prompt": [{"role": "system", "content": "Be kind."}]}, "no message of a user"),
    ],
)
def test_images_without_a_place_refuse_their_row(
    tmp_path: Path, row: dict[str, Any], words: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({**ANSWERS, **row, "images": [data_url(BLUE)]}) + "\n")
    read = layouts.rows(path=str(path), chosen={}, columns=500, decoded=10**9, scratch="-")
    next(read)
    ((field, message),) = [one["fault"] for one in read]
    assert field == "images"
    assert words in message


def test_a_large_image_in_a_text_is_no_long_text(project: Project, tmp_path: Path) -> None:
    noise = Image.effect_noise((700, 700), 90)
    url = data_url(encoded(noise))
    assert len(url) > 400_000
    path = tmp_path / "rows.jsonl"
    row = {"prompt": f"![noise]({url}) What?", "response_a": "Snow.", "response_b": "Sand."}
    path.write_text(json.dumps(row) + "\n")
    imported(project, path)
    assert StoredImage.objects.filter(project=project).count() == 1
    shown = next(
        layouts.preview(path=str(path), chosen={}, columns=500, decoded=10**9, scratch="-")
    )
    assert shown["rows"][0]["prompt"].endswith("What?")


def test_a_column_of_other_images_refuses_its_row_and_one_of_addresses_is_left(
    tmp_path: Path,
) -> None:
    moving = encoded(picture(3), "GIF")
    row = {"prompt": "Which is it?", "chosen": "Blue.", "rejected": "Red."}
    for images, wanted in (
        ([{"bytes": moving, "path": None}], "holds no PNG, JPEG or WebP at place 1"),
        ([{"bytes": None, "path": "far/away.png"}], None),
    ):
        held = datasets.Dataset.from_list([{**row, "images": images}])
        held.to_parquet(tmp_path / "rows.parquet")
        read = layouts.rows(
            path=str(tmp_path / "rows.parquet"), chosen={}, columns=500, decoded=10**9, scratch="-"
        )
        next(read)
        (found,) = read
        assert (found.get("fault") or [None, None])[1] == wanted
