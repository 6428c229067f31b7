"""Passwords that only look long: a common one, or a word of this site, with decoration."""

import re
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.password_validation import CommonPasswordValidator
from django.core.exceptions import ValidationError
from django.utils.translation import gettext, gettext_lazy

# What people who guess here would try first; the site's own name comes from SITE_URL.
SITE_WORDS = frozenset(
    {
        "concord",
        "annotator",
        "annotators",
        "reviewer",
        "engineer",
        "admin",
        "administrator",
        "label",
        "labels",
        "labeling",
        "labelling",
        "vote",
        "votes",
        "project",
        "password",
        "passwort",
        "login",
        "signin",
        "user",
    }
)
_WORDS = re.compile(r"[^\W\d_]+")
_UNIT = re.compile(r"(.+?)\1+")


def site_words() -> frozenset[str]:
    """Words that a password here may not consist of."""
    host = urlsplit(settings.SITE_URL).hostname or ""
    return SITE_WORDS | {word for word in _WORDS.findall(host.casefold()) if len(word) > 2}


class DecoratedPasswordValidator(CommonPasswordValidator):
    """Refuses what is left of nothing when digits and signs are taken off: `dragon-2026!!`,
    `qwertyqwerty1`, `concord_admin_99`. Several other words are a good password."""

    def validate(self, password: str, user: object = None) -> None:
        words = [_once(word) for word in _WORDS.findall(password.casefold())]
        common = len(set(words)) == 1 and words[0] in self.passwords
        if words and (common or set(words) <= site_words()):
            raise ValidationError(
                gettext(
                    "This is a common password or a word of this site, with digits or signs added."
                ),
                code="password_decorated",
            )

    def get_help_text(self) -> str:
        return str(
            gettext_lazy("Not a common password or a word of this site with digits or signs added.")
        )


def _once(word: str) -> str:
    """A word that repeats itself, once."""
    match = _UNIT.fullmatch(word)
    return match[1] if match else word
