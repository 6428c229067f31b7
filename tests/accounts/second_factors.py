"""Second factors of the people of the tests."""

import time
from typing import Any

from allauth.mfa.models import Authenticator
from django.test import Client

from apps.accounts.models import User
from tests.people import PASSWORD

SECRET = "JBSWY3DPEHPK3PXP"


def app_make(user: User) -> Authenticator:
    """An authenticator app with a known secret."""
    return Authenticator.objects.create(user=user, type="totp", data={"secret": SECRET})


def code_of(secret: str = SECRET, *, steps: int = 0) -> str:
    """What an app shows now (RFC 6238), by its own arithmetic; `steps` half minutes from now."""
    import base64
    import hashlib
    import hmac

    counter = (int(time.time()) // 30 + steps).to_bytes(8, "big")
    digest = hmac.new(base64.b32decode(secret), counter, hashlib.sha1).digest()
    start = digest[-1] % 16
    number = int.from_bytes(digest[start : start + 4], "big") % 2**31
    return f"{number % 10**6:06}"


def sign_in(client: Client, name: str, password: str = PASSWORD, **more: Any) -> Any:
    return client.post("/sign-in/", {"login": name, "password": password}, **more)


def is_signed_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


def stale(client: Client) -> None:
    """As if this browser had signed in an hour ago."""
    session = client.session
    session["fresh_sign_in"] = int(time.time()) - 3600
    session.save()
