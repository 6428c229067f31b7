"""Secrets in the database are encrypted, with a key that rotates."""

from datetime import timedelta
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.common.errors import Conflict
from apps.common.sealing import MARK, seal, unseal
from apps.monitoring.models import Channel

pytestmark = pytest.mark.django_db
SECRET = "whsec_" + "QUJD" * 10


@pytest.fixture
def channel(project: Project) -> Channel:
    return Channel.objects.create(
        project=project, kind="webhook", address="https://example.org", secret=SECRET
    )


def stored() -> list[str]:
    """What whoever reads the tables sees."""
    with connection.cursor() as cursor:
        cursor.execute("select secret, secret_before from monitoring_channel")
        return [value for row in cursor.fetchall() for value in row]


def test_the_table_does_not_hold_what_the_program_reads(channel: Channel) -> None:
    secret, before = stored()
    assert secret.startswith(MARK)
    assert "QUJD" not in secret
    assert before == ""
    assert Channel.objects.get().keys == [SECRET]


def test_the_seed_of_an_authenticator_app_is_sealed(ana: User) -> None:
    seed = generate_totp_secret()
    TOTP.activate(ana, seed)
    assert Authenticator.objects.get().data["secret"].startswith(MARK)
    assert seed not in str(Authenticator.objects.values())


def test_a_new_key_reads_what_the_former_sealed_and_seals_it_again(
    channel: Channel, ana: User, settings: Any
) -> None:
    TOTP.activate(ana, generate_totp_secret())
    former = settings.SECRET_KEY
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another" * 8, [former]
    assert Channel.objects.get().secret == SECRET
    call_command("secrets_seal")
    settings.SECRET_KEY_FALLBACKS = []
    assert Channel.objects.get().secret == SECRET
    assert unseal(Authenticator.objects.get().data["secret"])


def test_without_its_key_it_says_what_to_do_and_the_rest_is_read(
    channel: Channel, ana: User, settings: Any
) -> None:
    TOTP.activate(ana, generate_totp_secret())
    before = [*stored(), Authenticator.objects.get().data["secret"]]
    settings.SECRET_KEY = "another" * 8
    found = Channel.objects.get()
    assert found.address == "https://example.org"
    with pytest.raises(Conflict, match="SECRET_KEY_FALLBACKS"):
        _ = found.keys
    with pytest.raises(CommandError, match="2 were sealed under a key"):
        call_command("secrets_seal")
    assert [*stored(), Authenticator.objects.get().data["secret"]] == before
    found.secret_before, found.secret = found.secret, "whsec_new"
    found.secret_before_until = timezone.now() + timedelta(days=1)
    found.save()
    assert Channel.objects.get().keys == ["whsec_new"]


def test_what_was_stored_before_is_read_and_a_changed_value_is_not(channel: Channel) -> None:
    assert unseal("whsec_plain") == "whsec_plain"
    sealed = seal("a secret")
    with pytest.raises(Conflict):
        unseal(sealed[:-4] + "AAAA")
