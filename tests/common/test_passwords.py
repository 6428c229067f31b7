"""Passwords that are common ones in disguise. No database."""

from types import SimpleNamespace

import pytest
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError


@pytest.mark.parametrize(
    "password",
    [
        "dragon-2026!!",
        "12345DRAGON67890",
        "qwertyqwertyqwerty",
        "Concord_Admin_99",
        "labels.example.org",
        "1234567890",
    ],
)
def test_a_common_password_or_a_word_of_the_site_is_refused_whatever_stands_around_it(
    password, settings
):
    settings.SITE_URL = "https://labels.example.org"
    with pytest.raises(ValidationError):
        validate_password(password, SimpleNamespace(username="ana"))


@pytest.mark.parametrize(
    "password",
    [
        "correct horse battery staple",
        "concord grape juice 4",
        "нет-ничего-проще",
        "x" * 1000 + " and so on",
        "zkqvwhtrjz",
        "7391-2846-5520-1137",
    ],
)
def test_any_other_password_is_taken_whatever_it_is_made_of_and_however_long(password):
    validate_password(password, SimpleNamespace(username="ana"))
