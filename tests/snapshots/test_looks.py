"""The private test is looked at rarely: the sixth time somebody else must sign."""

import pytest

from apps.accounts.models import AuditEvent, Membership, Project, User
from apps.labeling.models import Comparison
from apps.snapshots.models import Snapshot, SplitAccess
from apps.snapshots.recipe import SnapshotRecipe
from apps.snapshots.selectors.looks import looks_of
from apps.snapshots.services import freezing
from apps.snapshots.services.looks import look_sign, split_access_record
from measures.looks import look_alpha

pytestmark = pytest.mark.django_db


@pytest.fixture
def frozen(project: Project, crowd: list[Comparison], emil: User) -> Snapshot:
    recipe = SnapshotRecipe(
        heldout_annotators=0.0,
        splits={"train": 0.4, "public_test": 0.2, "private_test": 0.4},
        split_by="argument",
        near_duplicates="join",
    )
    return freezing.snapshot_freeze(project=project, name="kept", recipe=recipe, user=emil)


def test_the_sixth_look_at_the_private_test_asks_for_a_second_person(
    project: Project, frozen: Snapshot, ada: User, emil: User, signed_in
) -> None:
    client = signed_in(ada)
    address = f"/p/arguments/datasets/{frozen.pk}/private/"
    for _ in range(5):
        assert client.post(address, {"split": "private_test"}).status_code == 200
    refused = client.post(address, {"split": "private_test"})
    assert refused.status_code == 409
    assert "look 6 at private_test" in refused.content.decode()
    assert SplitAccess.objects.filter(split="private_test", person=ada).count() == 5
    assert AuditEvent.objects.filter(action="snapshot.private_read").count() == 5
    look_sign(
        snapshot=frozen, split="private_test", look=6, person=ada, by=emil, reason="Release 2"
    )
    assert client.post(address, {"split": "private_test"}).status_code == 200
    assert client.post(address, {"split": "private_test"}).status_code == 409, "once"


def test_a_signature_is_for_one_person(
    project: Project, frozen: Snapshot, ada: User, emil: User, rita: User, signed_in
) -> None:
    Membership.objects.filter(user=rita).update(role="admin")
    for _ in range(5):
        split_access_record(
            snapshot=frozen, split="private_test", purpose="private", n_items=1, person=ada
        )
    look_sign(snapshot=frozen, split="private_test", look=6, person=ada, by=emil, reason="Once")
    address = f"/p/arguments/datasets/{frozen.pk}/private/"
    assert signed_in(rita).post(address, {"split": "private_test"}).status_code == 409
    assert signed_in(ada).post(address, {"split": "private_test"}).status_code == 200


def test_each_held_out_split_has_its_count_and_the_alpha_of_its_next_look(
    project: Project, frozen: Snapshot, emil: User
) -> None:
    about = {"snapshot": frozen, "n_items": 3, "person": emil}
    for run, attempt in (("one", 1), ("one", 2), ("two", 1)):
        split_access_record(
            **about, split="public_test", purpose="reward", run=run, attempt=attempt, seq=4
        )
    split_access_record(**about, split="public_test", purpose="probe", run="p", attempt=1, seq=4)
    split_access_record(**about, split="train", purpose="reward", run="one", attempt=1, seq=3)
    found = {one.split: one for one in looks_of(frozen)}
    assert set(found) == {"public_test", "private_test"}
    assert (found["public_test"].used, found["public_test"].budget) == (2, None)
    assert found["public_test"].alpha == pytest.approx(look_alpha(3))
    assert (found["private_test"].used, found["private_test"].budget) == (0, 5)
