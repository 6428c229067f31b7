"""The frame every page stands in."""

import pytest
from django.test import Client


@pytest.mark.django_db
def test_the_sign_in_page_is_served_to_anyone(client: Client):
    page = client.get("/sign-in/")
    assert page.status_code == 200
    assert "htmx-2.min.js" in page.content.decode()


def test_home_lists_nothing_but_what_to_do_for_a_person_without_a_project(db, signed_in):
    from tests.people import person_make

    page = signed_in(person_make("Nils")).get("/")
    assert "You are in no project yet" in page.content.decode()
