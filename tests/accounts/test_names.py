"""A name belongs to one person, whatever its case, also where two take it in the same moment."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, transaction

from apps.accounts.models import User
from apps.accounts.services import user_create
from apps.common.errors import Conflict

PASSWORD = "correct-horse-battery"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("second", "code"),
    [
        ({"username": "BEA", "email": "b@example.org"}, "username_taken"),
        ({"username": "Bea", "email": ""}, "username_taken"),
        ({"username": "Ben", "email": "bea@example.org"}, "email_taken"),
    ],
)
def test_of_two_who_take_a_name_in_the_same_moment_one_is_told(
    second: dict[str, str], code: str
) -> None:
    def create() -> str:
        try:
            user_create(password=PASSWORD, **second)
        except Conflict as error:
            return error.code
        finally:
            connection.close()
        return "created"

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            user_create(username="Bea", email="bea@example.org", password=PASSWORD)
            waiting = pool.submit(create)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=1)
        assert waiting.result(timeout=10) == code
    assert User.objects.count() == 1


@pytest.mark.django_db
def test_people_of_past_votes_may_differ_in_case_alone() -> None:
    for name in ("imported.1.bob", "imported.1.Bob"):
        User.objects.create(username=name, password="!", is_imported=True, is_active=False)
    assert User.objects.filter(username__iexact="imported.1.bob").count() == 2
