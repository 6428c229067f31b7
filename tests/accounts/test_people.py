"""A project's people: adding, creating, changing, removing; and the log of it."""

import pytest

from apps.accounts import services
from apps.accounts.models import AuditEvent, Membership, Role, User
from apps.common.errors import Conflict, DomainError, Refused


def test_ada_adds_olga_by_her_sign_in_name(project, ada, olga, signed_in):
    page = signed_in(ada).post(
        "/p/arguments/people/add/", {"username": "olga", "role": "annotator"}
    )
    assert page.status_code == 302
    assert Membership.objects.get(project=project, user=olga).role == "annotator"
    event = AuditEvent.objects.get(action="membership.added", project=project)
    assert (event.actor, event.subject, event.details) == (ada, "olga", {"role": "annotator"})


def test_a_name_nobody_has_is_marked_at_its_field_and_kept(project, ada, signed_in):
    page = signed_in(ada).post("/p/arguments/people/add/", {"username": "nils", "role": "admin"})
    text = page.content.decode()
    assert page.status_code == 422
    assert "Nobody has the sign-in name &#x27;nils&#x27;" in text
    assert 'value="nils"' in text


def test_ada_creates_an_account_whose_password_is_shown_once_and_works(
    project, ada, signed_in, client
):
    page = signed_in(ada).post(
        "/p/arguments/people/create/",
        {"new_username": "nils", "display_name": "Nils", "email": "", "new_role": "annotator"},
    )
    text = page.content.decode()
    password = text.split('<div class="secret"><code>')[1].split("</code>")[0]
    assert client.login(username="nils", password=password)
    assert password not in signed_in(ada).get("/p/arguments/people/").content.decode()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"new_username": "ana"}, "already exists"),
        ({"new_username": "na me"}, "Enter a valid username"),
        ({"new_username": "nils", "email": "ana@example.org"}, "has this e-mail address already"),
    ],
)
def test_an_account_that_cannot_be_made_leaves_nothing_behind(
    project, ana, ada, signed_in, data, words
):
    before = User.objects.count()
    page = signed_in(ada).post(
        "/p/arguments/people/create/", {"new_role": "annotator", "display_name": ""} | data
    )
    assert page.status_code == 422
    assert words in page.content.decode()
    assert User.objects.count() == before


def test_the_last_admin_can_be_neither_demoted_nor_removed(project, ada, emil):
    with pytest.raises(Conflict, match="last admin") as refused:
        services.membership_set(project=project, user=ada, role=Role.ENGINEER, by=ada)
    assert refused.value.code == "last_admin"
    with pytest.raises(Conflict, match="last admin"):
        services.membership_remove(project=project, user=ada, by=ada)
    services.membership_set(project=project, user=emil, role=Role.ADMIN, by=ada)
    services.membership_remove(project=project, user=ada, by=emil)
    assert not Membership.objects.filter(project=project, user=ada).exists()


def test_an_admin_who_cannot_sign_in_does_not_count_as_one(project, ada, emil):
    services.membership_set(project=project, user=emil, role=Role.ADMIN, by=ada)
    User.objects.filter(pk=emil.pk).update(is_active=False)
    with pytest.raises(Conflict, match="last admin"):
        services.membership_remove(project=project, user=ada, by=ada)


def test_the_page_says_why_the_last_admin_stays(project, ada, signed_in):
    page = signed_in(ada).post(f"/p/arguments/people/{ada.pk}/remove/")
    assert page.status_code == 422
    assert "is the last admin of Arguments" in page.content.decode()


def test_somebody_removed_has_no_way_back_in(project, ada, ana, signed_in):
    client = signed_in(ana)
    services.membership_remove(project=project, user=ana, by=ada)
    assert client.get("/p/arguments/").status_code == 404


def test_people_are_found_by_name_and_by_role(project, ada, ana, emil, signed_in):
    client = signed_in(ada)
    text = client.get("/p/arguments/people/?q=EMI").content.decode()
    assert "Emil" in text
    assert "1 person" in text
    assert "Emil" not in client.get("/p/arguments/people/?role=annotator").content.decode()
    assert "Nobody matches" in client.get("/p/arguments/people/?q=xyz").content.decode()


def test_the_audit_log_shows_who_did_what_and_filters(project, ada, ana, signed_in):
    services.membership_set(project=project, user=ana, role=Role.REVIEWER, by=ada)
    client = signed_in(ada)
    text = client.get("/p/arguments/audit-log/").content.decode()
    assert "membership.changed" in text
    assert "role: reviewer; before: annotator" in text
    assert "Nothing here" in client.get("/p/arguments/audit-log/?q=nobody").content.decode()


def test_only_who_administers_a_project_may_create_one(project, ada, emil):
    made = services.project_create(name="Second try", by=ada)
    assert made.slug == "second-try"
    assert Membership.objects.get(project=made).user == ada
    with pytest.raises(Refused):
        services.project_create(name="Third", by=emil)
    with pytest.raises(Conflict) as taken:
        services.project_create(name="Second try", by=ada)
    assert taken.value.field == "slug"


def test_a_weak_password_is_refused_with_the_reason(db):
    with pytest.raises(DomainError) as refused:
        services.user_create(username="nils", password="short")
    assert refused.value.field == "password"
    assert not User.objects.filter(username="nils").exists()


def test_imported_annotators_do_not_bury_the_people_who_sign_in(project, ada, signed_in):
    ghost = User.objects.create(username="w17", password="!", is_active=False, is_imported=True)
    Membership.objects.create(project=project, user=ghost, role=Role.ANNOTATOR)
    client = signed_in(ada)
    for query, shown in (("", False), ("?who=imported", True), ("?who=everybody", True)):
        text = client.get(f"/p/arguments/people/{query}").content.decode()
        assert ("w17" in text) is shown, query
