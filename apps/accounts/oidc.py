"""What allauth asks of this site about people whom the provider of OpenID Connect sends.

One provider, from the environment. A person is known by the provider's `sub`; to an account that
there is they come by connecting it themselves, or by their address where OIDC_LINK_BY_EMAIL allows
it. Claims become roles at every sign-in (`services.claims`).
"""

import time
from typing import Any, NoReturn

from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialLogin
from allauth.socialaccount.providers.base import AuthProcess
from django.conf import settings
from django.contrib import messages
from django.db import IntegrityError, transaction
from django.http import Http404, HttpRequest
from django.shortcuts import redirect
from django.urls import resolve, reverse
from django.utils.http import urlencode
from django.utils.translation import gettext

from apps.accounts import services
from apps.accounts.models import User
from apps.accounts.reauthentication import fresh_sign_in_note
from apps.accounts.selectors import invitation_of, site_has_people
from apps.common.environment import SITE_ADMIN
from apps.common.http import client_address
from apps.common.refusals import log_denied

PROVIDER = "oidc"  # of SocialAccount.provider, and in the provider's address of this site
CONNECTING = "oidc_connecting"  # of the session: the person has pressed the button
_MOST_AGE = 300  # seconds since the sign-in at the provider that counts as one again


class ProviderAdapter(DefaultSocialAccountAdapter):
    def list_apps(
        self, request: HttpRequest, provider: str | None = None, client_id: str | None = None
    ) -> list[SocialApp]:
        """The one of the environment; rows of allauth's own table count for nothing."""
        if not settings.OIDC_ISSUER or provider not in {None, "openid_connect", PROVIDER}:
            return []
        app = SocialApp(
            provider="openid_connect",
            provider_id=PROVIDER,
            name=settings.OIDC_NAME,
            client_id=settings.OIDC_CLIENT_ID,
            secret=settings.OIDC_CLIENT_SECRET,
            settings={"server_url": settings.OIDC_ISSUER, "oauth_pkce_enabled": True},
        )
        return [app]

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        return False  # `pre_social_login` makes the accounts that there may be

    def on_authentication_error(
        self, request: HttpRequest, provider: Any, error: Any = None, **more: Any
    ) -> None:
        log_denied(request, 401, f"sign-in by the provider: {error}")
        words = gettext("Signing in with %(name)s did not work. Try again.")
        _back(request, words % {"name": settings.OIDC_NAME})

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        """Settles who it is; what happens then is allauth's."""
        _check_subject(request, sociallogin)
        process = sociallogin.state.get("process")
        if process == AuthProcess.REDIRECT:
            _signed_in_again(request, sociallogin)
        elif process == AuthProcess.CONNECT:
            _connect(request, sociallogin)
        elif process == AuthProcess.LOGIN:
            _settle(request, sociallogin)
        else:
            _back(request, gettext("The request could not be read."))


def claims_of(sociallogin: SocialLogin) -> dict[str, Any]:
    """Of the ID token and the user-info address together."""
    said = sociallogin.account.extra_data
    return {**said.get("id_token", {}), **said.get("userinfo", {})}


def is_linked(user: User) -> bool:
    """Whether this person can sign in by the provider."""
    return bool(settings.OIDC_ISSUER) and (
        SocialAccount.objects.filter(user=user, provider=PROVIDER).exists()
    )


def provider_url(**query: str) -> str:
    """The address of this site that leads to the provider."""
    return f"{reverse('openid_connect_login', args=[PROVIDER])}?{urlencode(query)}"


def asked_second_factor(sociallogin: SocialLogin) -> bool:
    """Whether the provider says that it did (RFC 8176)."""
    amr = sociallogin.account.extra_data.get("id_token", {}).get("amr")
    return isinstance(amr, list) and "mfa" in amr


def signed_in_at(sociallogin: SocialLogin) -> float | None:
    """When the person signed in at the provider, in seconds since 1970; None where it does not say.
    Browsers that are signed in there already pass without a question."""
    at = sociallogin.account.extra_data.get("id_token", {}).get("auth_time")
    return at if isinstance(at, int | float) else None


def _check_subject(request: HttpRequest, sociallogin: SocialLogin) -> None:
    """The user-info address must speak of the person of the ID token (OpenID Connect, 5.3.2)."""
    said = sociallogin.account.extra_data
    subjects = {said[part].get("sub") for part in ("id_token", "userinfo") if part in said}
    if len(subjects) != 1:
        _refuse(request, None, "subjects differ")


def _settle(request: HttpRequest, sociallogin: SocialLogin) -> None:
    claims = claims_of(sociallogin)
    if not sociallogin.is_existing:
        try:
            with transaction.atomic():
                user = _person_for(claims, sociallogin.get_redirect_url(request) or "")
                if user is not None:
                    sociallogin.connect(request, user)
        except IntegrityError:  # the same person in another tab
            _back(request, gettext("Try again."))
    user = sociallogin.user
    if not sociallogin.is_existing:
        _refuse(request, None, "no account")
    if not user.is_active or user.is_imported:
        _refuse(request, user, "deactivated")
    services.claims_apply(user=user, claims=claims)


def _person_for(claims: dict[str, Any], target: str) -> User | None:
    """The account of somebody who comes for the first time, or None."""
    email = services.verified_email(claims)
    if email:
        found = User.objects.filter(email__iexact=email, is_active=True, is_superuser=False)
        if not settings.OIDC_LINK_BY_EMAIL:  # the directory said whose the address is
            found = found.exclude(scim_external_id="")
        if (user := found.first()) is not None:
            services.provider_person_take_over(user=user)
            services.provider_record(action="user.provider_connected", user=user)
            return user
    rules = services.rules_met(claims)
    if not site_has_people() and SITE_ADMIN not in {rule.right for rule in rules}:
        return None  # the set-up page would be gone, and nobody could administer the site
    if rules or _is_invitation(target):
        return services.provider_person_create(claims=claims)
    return None


def _is_invitation(target: str) -> bool:
    """Whether somebody is on the way to an invitation that still opens something."""
    try:
        match = resolve(target.partition("?")[0])
    except Http404:
        return False
    is_one = match.view_name == "accounts:invitation"
    return is_one and invitation_of(match.kwargs["token"]) is not None


def _connect(request: HttpRequest, sociallogin: SocialLogin) -> NoReturn:
    """From now on the person signs in by the provider as well."""
    if not request.session.pop(CONNECTING, False) or not request.user.is_authenticated:
        _back(request, gettext("Press the button on your account page to connect it."))
    if sociallogin.is_existing and sociallogin.user != request.user:
        _back(request, gettext("Somebody else here is connected with that account."))
    if not sociallogin.is_existing:
        sociallogin.connect(request, request.user)
        services.provider_record(action="user.provider_connected", user=request.user)
    messages.success(request, gettext("Connected: you can sign in with it."))
    raise ImmediateHttpResponse(redirect("accounts:account"))


def _signed_in_again(request: HttpRequest, sociallogin: SocialLogin) -> None:
    """The same person, and just now where the provider says when."""
    at = signed_in_at(sociallogin)
    is_old = at is not None and time.time() - at > _MOST_AGE
    if not request.user.is_authenticated or sociallogin.user != request.user or is_old:
        messages.error(request, gettext("Somebody else signed in there, or not just now."))
        raise ImmediateHttpResponse(redirect("accounts:sign_in_again"))
    fresh_sign_in_note(request, at)
    services.sign_in_again_record(user=request.user, how=settings.OIDC_NAME)


def _refuse(request: HttpRequest, user: User | None, reason: str) -> NoReturn:
    log_denied(request, 403, f"sign-in by the provider: {reason}")
    services.provider_record(
        action="user.sign_in_refused", user=user, reason=reason, address=client_address(request)
    )
    _back(
        request,
        gettext("You have no account here that can sign in. Ask an admin for an invitation."),
    )


def _back(request: HttpRequest, words: str) -> NoReturn:
    """To the sign-in page; whoever is signed in, to their account."""
    messages.error(request, words)
    signed_in = request.user.is_authenticated
    raise ImmediateHttpResponse(redirect("accounts:account" if signed_in else "accounts:sign_in"))
