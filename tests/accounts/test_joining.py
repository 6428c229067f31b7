"""How people come in: the first of a site, the invited, who forgot a password; and who goes."""

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.db import connection
from django.test import Client
from django.utils import timezone

from apps.accounts import services
from apps.accounts.models import AuditEvent, Invitation, Membership, Project, Role, User
from apps.accounts.selectors import belongs_only_to_admin, person_named, site_has_people
from apps.accounts.services.invitations import addresses_read
from apps.common import registry
from apps.common.errors import Conflict, DomainError
from apps.labeling.models import Comparison, Vote
from apps.training.models import Run
from tests.people import PASSWORD, person_make

NEW = {"username": "nils", "email": "Nils@Example.org", "password": "long-enough-secret"}


def paths_in(page: Any, start: str) -> list[str]:
    found = re.findall(rf"data-copy=\"http://testserver({start}[^\"]+)\"", page.content.decode())
    return list(dict.fromkeys(found))


# --- the first person


def test_an_empty_site_makes_its_first_administrator_once(db, client):
    assert client.get("/sign-in/").url == "/set-up/"
    (line,) = [text for text in registry.start_lines() if "/set-up/" in text]
    token = line.split("token=")[1]
    wrong = client.post("/set-up/", NEW | {"token": "x" * 24})
    assert wrong.status_code == 422
    assert not site_has_people()
    done = client.post("/set-up/", NEW | {"token": token})
    assert done.url == "/projects/new/"
    user = User.objects.get()
    assert (user.is_superuser, user.email) == (True, "nils@example.org")
    assert client.get("/projects/").status_code == 200  # signed in
    assert Client().get("/set-up/").status_code == 404
    assert registry.start_lines() == []
    with pytest.raises(Conflict) as refused:
        services.first_admin_create(token=token, **NEW | {"username": "eve", "email": ""})
    assert refused.value.code == "set_up_already"


@pytest.mark.django_db(transaction=True)
def test_of_two_first_people_at_once_one_is_refused():
    token = services.set_up_token()

    def come(name: str) -> bool:
        try:
            services.first_admin_create(
                token=token, username=name, email="", password=NEW["password"]
            )
        except Conflict:
            return False
        finally:
            connection.close()
        return True

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(come, ["nils", "eve"])) == [False, True]
    assert User.objects.filter(is_superuser=True).count() == 1


# --- invitations


def test_a_pasted_list_makes_a_link_for_each_and_adds_who_is_named(project, ada, olga, signed_in):
    rita = person_make("Rita")
    page = signed_in(ada).post(
        "/p/arguments/people/invite/",
        {
            "addresses": "Ben Ro <ben@example.org>, cleo@example.org;\n"
            "OLGA@example.org ben@example.org rita",
            "role": "annotator",
            "days": 14,
        },
    )
    assert [row.email for row in Invitation.objects.order_by("created_at")] == [
        "ben@example.org",
        "cleo@example.org",
        "olga@example.org",
    ]
    assert len(paths_in(page, "/invitation/")) == 3
    assert Membership.objects.get(project=project, user=rita).role == Role.ANNOTATOR
    # whoever writes an address into their account is not let in by it
    assert not Membership.objects.filter(project=project, user=olga).exists()
    assert not paths_in(signed_in(ada).get("/p/arguments/people/"), "/invitation/")


def test_what_is_no_address_is_named_and_nothing_is_made(project, ada, signed_in):
    with pytest.raises(DomainError) as refused:
        addresses_read("ben@example.org, nobody-here")
    assert (refused.value.code, refused.value.field) == ("no_address", "addresses")
    page = signed_in(ada).post(
        "/p/arguments/people/invite/",
        {"addresses": "ben@example.org, nobody-here", "role": "annotator", "days": 14},
    )
    assert page.status_code == 422
    assert not Invitation.objects.exists()


def test_the_invited_choose_their_own_password_and_the_link_works_once(project, ada, client):
    row, token = services.invitation_create(project=project, role=Role.REVIEWER, by=ada)
    assert token not in str(Invitation.objects.values_list("sha256", flat=True))
    path = f"/invitation/{token}/"
    weak = client.post(path, NEW | {"password": "short"})
    assert (weak.status_code, User.objects.filter(username="nils").exists()) == (422, False)
    assert client.post(path, NEW).url == "/p/arguments/"
    member = Membership.objects.get(project=project, user__username="nils")
    assert member.role == Role.REVIEWER
    row.refresh_from_db()
    assert row.accepted_by == member.user
    assert Client().get(path).status_code == 404
    again = Client().post(path, NEW | {"username": "eve", "email": ""})
    assert again.status_code == 404
    assert not User.objects.filter(username="eve").exists()


def test_who_is_signed_in_joins_with_their_account_and_keeps_a_role(
    project, ada, ana, olga, signed_in
):
    _, token = services.invitation_create(project=project, role=Role.ENGINEER, by=ada)
    assert signed_in(olga).get(f"/invitation/{token}/").status_code == 200
    assert signed_in(olga).post(f"/invitation/{token}/").url == "/p/arguments/"
    assert Membership.objects.get(project=project, user=olga).role == Role.ENGINEER
    _, second = services.invitation_create(project=project, role=Role.ADMIN, by=ada)
    signed_in(ana).post(f"/invitation/{second}/")
    assert Membership.objects.get(project=project, user=ana).role == Role.ANNOTATOR


@pytest.mark.parametrize("how", ["expired", "revoked", "renewed", "archived"])
def test_a_link_that_is_over_opens_nothing(project, ada, client, how):
    row, token = services.invitation_create(project=project, role=Role.ADMIN, by=ada)
    if how == "expired":
        Invitation.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    elif how == "revoked":
        services.invitation_revoke(invitation=row, by=ada)
    elif how == "renewed":
        services.invitation_renew(invitation=row, by=ada)
    else:
        services.project_archive(project=project, by=ada)
    assert client.post(f"/invitation/{token}/", NEW).status_code == 404
    assert not User.objects.filter(username="nils").exists()


@pytest.mark.django_db(transaction=True)
def test_two_who_open_one_link_at_once_do_not_both_get_in():
    project = Project.objects.create(slug="arguments", name="Arguments")
    _, token = services.invitation_create(project=project, role=Role.ANNOTATOR, by=None)
    users = [person_make(name) for name in ("Nils", "Eve")]

    def join(user: User) -> bool:
        try:
            services.invitation_accept(token=token, user=user)
        except Conflict:
            return False
        finally:
            connection.close()
        return True

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(join, users)) == [False, True]
    assert Membership.objects.filter(project=project).count() == 1


def test_with_a_mail_server_links_go_by_mail_and_can_be_sent_again(
    project, ada, signed_in, settings
):
    settings.EMAIL_URL = "smtps://mail.example.org"
    data = {"addresses": "ben@example.org", "role": "annotator", "days": 3}
    signed_in(ada).post("/p/arguments/people/invite/", data)
    row = Invitation.objects.get()
    assert row.mailed_at
    first = re.search(r"/invitation/[\w-]+/", mail.outbox[0].body)[0]
    signed_in(ada).post(f"/p/arguments/people/invitations/{row.pk}/", {"act": "renew"})
    second = re.search(r"/invitation/[\w-]+/", mail.outbox[1].body)[0]
    assert Client().get(first).status_code == 404
    assert Client().get(second).status_code == 200
    assert mail.outbox[1].to == ["ben@example.org"]


# --- signing in and passwords


@pytest.mark.usefixtures("fresh_sign_in_counts")
@pytest.mark.parametrize("login", ["ana", "ANA", "ana@example.org", " Ana@Example.ORG "])
def test_a_name_or_an_address_opens_whatever_the_case(ana, client, login):
    assert client.post("/sign-in/", {"login": login, "password": PASSWORD}).status_code == 302


def test_nobody_gets_a_name_that_differs_by_its_case_alone(ana):
    with pytest.raises(Conflict) as refused:
        services.user_create(username="ANA")
    assert refused.value.code == "username_taken"
    assert person_named("aNa") == ana


@pytest.mark.usefixtures("fresh_sign_in_counts")
def test_a_deactivated_person_reads_what_a_wrong_password_says(ana, client):
    User.objects.filter(pk=ana.pk).update(is_active=False)
    page = client.post("/sign-in/", {"login": "ana", "password": PASSWORD})
    assert page.status_code == 200
    assert "_auth_user_id" not in client.session


def test_a_forgotten_password_is_renewed_by_a_link_in_the_mail(ana, client, settings):
    settings.EMAIL_URL = "smtps://mail.example.org"
    sent = client.post("/password/forgotten/", {"email": "Ana@example.org"})
    assert sent.url == "/password/sent/"
    assert mail.outbox[0].to == ["ana@example.org"]
    path = re.search(r"/password/new/\S+", mail.outbox[0].body)[0]
    form = client.get(path, follow=True)
    new = {"password1": "another-long-one", "password2": "another-long-one"}
    assert client.post(form.request["PATH_INFO"], new).url == "/sign-in/"
    assert Client().login(username="ana", password="another-long-one")
    over = Client().get(path, follow=True)
    assert over.context["token_fail"]


def test_an_address_that_nobody_has_gets_no_mail_and_the_same_page(db, client):
    person_make("Ana")
    assert client.post("/password/forgotten/", {"email": "eve@x.org"}).url == "/password/sent/"
    assert mail.outbox == []


def test_an_admin_makes_a_link_for_a_new_password_and_tokens_end(project, ada, ana, signed_in):
    token, _ = services.token_create(user=ana, name="t", scopes=["read"], days=1)
    page = signed_in(ada).post(f"/p/arguments/people/{ana.pk}/password/")
    (path,) = paths_in(page, "/password/new/")
    visitor = Client()
    form = visitor.get(path, follow=True)
    new = {"password1": "another-long-one", "password2": "another-long-one"}
    visitor.post(form.request["PATH_INFO"], new)
    assert Client().login(username="ana", password="another-long-one")
    token.refresh_from_db()
    assert token.revoked_at
    assert AuditEvent.objects.filter(action="user.password_link_made", actor=ada).exists()


def test_an_admin_cannot_take_over_people_of_other_projects(project, ada, ana, olga, signed_in):
    services.membership_set(
        project=Project.objects.get(slug="elsewhere"), user=ana, role=Role.ANNOTATOR
    )
    assert signed_in(ada).post(f"/p/arguments/people/{ana.pk}/password/").status_code == 403
    User.objects.filter(pk=ada.pk).update(is_superuser=True)
    assert belongs_only_to_admin(ana, User.objects.get(pk=ada.pk))


# --- everybody of the site


def test_an_administrator_of_the_site_deactivates_and_says_who_creates(
    project, ada, ana, emil, signed_in
):
    assert signed_in(ada).get("/site/people/").status_code == 403
    User.objects.filter(pk=ada.pk).update(is_superuser=True)
    site, anas = signed_in(ada), signed_in(ana)
    assert anas.get("/account/").status_code == 200
    site.post(f"/site/people/{ana.pk}/", {"act": "deactivate"})
    assert anas.get("/account/").status_code == 302  # out with the next request
    site.post(f"/site/people/{ana.pk}/", {"act": "reactivate"})
    assert User.objects.get(pk=ana.pk).is_active
    assert signed_in(emil).get("/projects/new/").status_code == 403
    site.post(f"/site/people/{emil.pk}/", {"act": "rights", "creates": "on"})
    assert signed_in(emil).get("/projects/new/").status_code == 200
    site.post(f"/site/people/{ada.pk}/", {"act": "rights"})  # the last one
    assert User.objects.get(pk=ada.pk).is_superuser


# --- projects


def test_a_new_project_leads_through_its_steps_until_finished(project, ada, signed_in):
    client = signed_in(ada)
    made = client.post("/projects/new/", {"name": "Über Tests", "description": "", "copy_of": ""})
    slug = Project.objects.exclude(pk=project.pk).get().slug
    assert made.url == f"/p/{slug}/imports/"
    steps = client.get(made.url).context["setup_bar"]
    assert [step["done"] for step in steps()] == [False] * 4
    client.post(
        f"/p/{slug}/guidelines/edit/", {"body": "Choose the better one.", "action": "publish"}
    )
    client.post(f"/p/{slug}/people/invite/", {"addresses": "", "role": "annotator", "days": 14})
    page = client.get(f"/p/{slug}/people/")
    assert [step["done"] for step in page.context["setup_bar"]()] == [False, True, False, True]
    client.post(f"/p/{slug}/project/set-up/")
    assert client.get(f"/p/{slug}/people/").context["setup_bar"]() == []


def test_settings_of_another_project_are_copied_and_its_data_are_not(project, ada, signed_in):
    from apps.labeling.models import LabelingSettings
    from apps.labeling.services import labeling_settings_update

    labeling_settings_update(project=project, by=ada, overlap=5, max_overlap=7, show_strength=True)
    data = {"name": "Second", "description": "", "copy_of": "arguments"}
    signed_in(ada).post("/projects/new/", data)
    copied = LabelingSettings.objects.get(project__slug="second")
    assert (copied.overlap, copied.max_overlap, copied.show_strength) == (5, 7, True)


def test_an_archived_project_is_out_of_reach_until_it_is_restored(project, ada, ana, signed_in):
    client = signed_in(ada)
    client.post("/p/arguments/project/archive/")
    assert signed_in(ana).get("/p/arguments/label/").status_code == 404
    assert signed_in(ana).post("/projects/arguments/restore/").status_code == 404
    client.post("/projects/arguments/restore/")
    assert signed_in(ana).get("/p/arguments/label/").status_code == 200


@pytest.fixture
def full_project(db) -> tuple[Project, User]:
    """A project with one of everything, and its admin."""
    from tests.web.world import world_make

    world = world_make()
    one_of_each = ("comparison", "import_job", "snapshot", "run", "incident", "watch", "mute")
    assert all(getattr(world, name) for name in one_of_each)
    return world.project, world.ada


def test_a_project_is_deleted_with_everything_in_it_and_nothing_else(full_project, signed_in):
    from apps.accounts.services.projects import models_of_projects

    project, ada = full_project
    client = signed_in(ada)
    others = Project.objects.exclude(pk=project.pk).count()
    assert client.post("/projects/arguments/delete/", {"typed": project.name}).status_code == 404
    services.project_archive(project=project, by=ada)
    stranger = signed_in(User.objects.get(username="olga"))
    offered = client.get("/projects/arguments/delete/").content.decode()
    for name, n in (("results", Comparison), ("votes", Vote)):
        assert f"/projects/arguments/delete/{name}/" in offered
        sent = client.get(f"/projects/arguments/delete/{name}/")
        assert len(b"".join(sent).splitlines()) == n.objects.filter(project=project).count()
        assert stranger.get(f"/projects/arguments/delete/{name}/").status_code == 404
    assert AuditEvent.objects.filter(action="file.downloaded", project=project).count() == 2
    assert client.get("/projects/arguments/delete/models/").status_code == 404
    wrong = client.post("/projects/arguments/delete/", {"typed": "Argument"})
    assert wrong.status_code == 422
    Run.objects.filter(project=project).update(state="running", ended_at=None)
    busy = client.post("/projects/arguments/delete/", {"typed": project.name})
    assert busy.status_code == 422
    Run.objects.filter(project=project).update(state="cancelled", ended_at=timezone.now())
    assert Project.objects.filter(pk=project.pk).exists()
    assert client.post("/projects/arguments/delete/", {"typed": project.name}).status_code == 302
    left = {
        model.__name__: model._default_manager.filter(**{path: project.pk}).count()
        for model, path in models_of_projects()
    }
    assert not any(left.values()), left
    assert Project.objects.count() == others
    assert AuditEvent.objects.filter(action="project.deleted", subject="arguments").exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("times", [1, 9])
def test_what_is_added_while_a_project_is_deleted_goes_with_it_or_is_told(times):
    ada = person_make("Ada")
    project = Project.objects.create(slug="gone", name="Gone", archived_at=timezone.now())
    left = [times]

    def add() -> None:
        person_make(f"New{left[0]}", project, Role.ANNOTATOR)
        connection.close()

    def meanwhile(execute, sql, *rest):
        """Between the deletion of its rows and that of the project, by another connection."""
        if sql.startswith('DELETE FROM "accounts_project"') and left[0]:
            left[0] -= 1
            pool.submit(add).result()
        return execute(sql, *rest)

    with ThreadPoolExecutor(1) as pool, connection.execute_wrapper(meanwhile):
        if times == 1:
            services.project_delete(project=project, typed="Gone", by=ada)
        else:
            with pytest.raises(Conflict, match="still being added"):
                services.project_delete(project=project, typed="Gone", by=ada)
    assert Project.objects.filter(pk=project.pk).exists() == (times > 1)
    assert Membership.objects.filter(project=project.pk).exists() == (times > 1)
