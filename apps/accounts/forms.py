"""Forms of the people pages. Rules live in services; a service's refusal lands on its field."""

from collections.abc import Callable, Mapping
from typing import Any

from allauth.account.adapter import get_adapter
from allauth.account.forms import LoginForm
from allauth.core import context
from allauth.mfa.base.forms import AuthenticateForm, ReauthenticateForm
from allauth.mfa.totp.forms import ActivateTOTPForm
from allauth.mfa.webauthn.forms import (
    AddWebAuthnForm,
    AuthenticateWebAuthnForm,
    ReauthenticateWebAuthnForm,
)
from django import forms
from django.conf import settings
from django.contrib.auth.forms import PasswordChangeForm
from django.core.exceptions import ValidationError
from django.utils.text import format_lazy
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from apps.accounts import services, throttle
from apps.accounts.models import DEFAULT_SCOPES, SCOPES, Project, Role, User
from apps.accounts.reader import zones
from apps.accounts.services import TOKEN_MAX_DAYS
from apps.accounts.services.invitations import MAX_DAYS, addresses_read
from apps.common import registry
from apps.common.errors import DomainError
from apps.common.http import client_address

_PASSWORD_HELP = _("At least ten characters; not a common one, and not like your name.")


class SignInForm(LoginForm):
    """allauth's: a name or an e-mail, and the password. The adapter counts failures."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["login"].label = _("Username or e-mail")
        self.fields["login"].max_length = 254
        attributes = {"autofocus": True, "autocomplete": "username", "autocapitalize": "none"}
        self.fields["login"].widget = forms.TextInput(attributes)
        self.fields["password"].widget = forms.PasswordInput({"autocomplete": "current-password"})


_CODE = {"autocomplete": "one-time-code", "inputmode": "numeric", "autofocus": True}


class _Counted:
    """A second factor whose failures make the next try wait, wherever they come from."""

    def _counted(self, clean: Callable[[], Any]) -> Any:
        attempt = throttle.Try.of_second_factor(self.user.pk)
        attempt.refuse_while_waiting()
        try:
            found = clean()
        except ValidationError:
            services.second_factor_failed(
                user=self.user,
                address=client_address(context.request),
                failures=attempt.count_failure(),
            )
            raise
        attempt.forget_failures()
        return found


class _CodeField(_Counted):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["code"].label = _("Code")
        self.fields["code"].max_length = 40
        self.fields["code"].widget = forms.TextInput(_CODE)

    def clean_code(self) -> str:
        return self._counted(super().clean_code)


class CodeForm(_CodeField, AuthenticateForm):
    """After the password: a code of the app, or a recovery code."""


class CodeAgainForm(_CodeField, ReauthenticateForm):
    """The same, to show again who one is."""


class PasskeyCheckForm(_Counted, AuthenticateWebAuthnForm):
    """After the password: a passkey."""

    def clean_credential(self) -> Any:
        return self._counted(super().clean_credential)


class PasskeyAgainForm(_Counted, ReauthenticateWebAuthnForm):
    def clean_credential(self) -> Any:
        return self._counted(super().clean_credential)


class AppForm(ActivateTOTPForm):
    """The first code of an app that has just been given the secret."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["code"].label = _("Code that the app shows")
        self.fields["code"].widget = forms.TextInput(_CODE)


class PasskeyForm(AddWebAuthnForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["name"].label = _("Name")
        self.fields["name"].max_length = 80
        self.fields["name"].initial = self.initial["name"] = gettext("Passkey")
        self.fields["name"].help_text = _("So that you know it again, such as “Laptop”.")
        passwordless = self.fields["passwordless"]
        passwordless.label = _("Sign in with it alone, without a password")
        passwordless.help_text = _("It has to ask for a PIN, a finger or a face.")
        passwordless.initial = True


class PasswordAgainForm(forms.Form):
    """The password of whoever is signed in."""

    password = forms.CharField(
        label=_("Password"),
        strip=False,
        widget=forms.PasswordInput({"autocomplete": "current-password"}),
    )

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.user = user

    def clean_password(self) -> str:
        password: str = self.cleaned_data["password"]
        if not get_adapter().reauthenticate(self.user, password):
            raise ValidationError(_("The password is wrong."), code="wrong_password")
        return password


class PasswordForm(PasswordChangeForm):
    """Django's, without its autofocus: it is one of several forms on its page."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["old_password"].widget.attrs.pop("autofocus", None)
        self.fields["new_password1"].help_text = _PASSWORD_HELP
        self.fields["new_password2"].label = _("New password again")
        self.fields["new_password2"].help_text = ""


class ProfileForm(forms.ModelForm):
    class Meta:
        model = User
        fields = ("display_name", "email", "language", "time_zone")
        labels = {
            "display_name": _("Name shown to others"),
            "email": _("E-mail"),
            "language": _("Language"),
            "time_zone": _("Time zone"),
        }
        help_texts = {
            "language": _("Of the pages that annotators use; the others are English."),
            "time_zone": _("Such as Europe/Berlin; empty for the one of your browser."),
        }
        widgets = {
            "language": forms.Select(choices=[("", _("As the browser asks")), *settings.LANGUAGES]),
            "time_zone": forms.TextInput({"autocomplete": "off", "data-zone": ""}),
        }

    def clean_language(self) -> str:
        language = self.cleaned_data["language"]
        if language and language not in dict(settings.LANGUAGES):
            raise ValidationError(_("There is no such language here."), code="invalid")
        return str(language)

    def clean_time_zone(self) -> str:
        zone = self.cleaned_data["time_zone"].strip()
        if zone and zone not in zones():
            raise ValidationError(
                _("That is no time zone. Write it as Europe/Berlin."), code="invalid"
            )
        return zone

    def clean_email(self) -> str:
        return self.cleaned_data["email"].lower()


class InviteForm(forms.Form):
    """A pasted list of addresses, or none for a link to hand over."""

    addresses = forms.CharField(
        label="E-mail addresses or usernames",
        required=False,
        widget=forms.Textarea({"rows": 3, "placeholder": "ben@example.org, cleo@example.org"}),
        help_text="One a line or separated by commas. Leave it empty for one link to hand over.",
    )
    role = forms.ChoiceField(label="Role", choices=Role.choices)
    days = forms.IntegerField(
        label="Days until it expires", min_value=1, max_value=MAX_DAYS, initial=14
    )

    def clean_addresses(self) -> list[str]:
        try:
            return addresses_read(self.cleaned_data["addresses"])
        except DomainError as error:
            raise ValidationError(error.message, code=error.code) from None


class NewPersonForm(forms.Form):
    """Somebody who makes their own account: by an invitation, or as the first of the site."""

    token = forms.CharField(label=_("Set-up token"), max_length=100)
    username = forms.CharField(
        label=_("Username"),
        max_length=150,
        widget=forms.TextInput({"autocomplete": "username", "autocapitalize": "none"}),
    )
    display_name = forms.CharField(label=_("Name shown to others"), max_length=150, required=False)
    email = forms.EmailField(label=_("E-mail"), required=False)
    password = forms.CharField(
        label=_("Password"),
        strip=False,
        widget=forms.PasswordInput({"autocomplete": "new-password"}),
        help_text=_PASSWORD_HELP,
    )

    def __init__(self, *args: Any, leave_out: tuple[str, ...] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in leave_out:
            del self.fields[name]


class ProjectForm(forms.ModelForm):
    class Meta:
        model = Project
        fields = ("name", "description")
        widgets = {"description": forms.Textarea({"rows": 2})}


def _named(words: str, source: Project | None, answers: Mapping[str, Mapping[Any, str]]) -> str:
    """`words`, and what a new project with the settings of `source` is for, where nothing else is
    chosen. `answers`: those of every question, by its name and the project."""
    said = []
    for question in registry.project_questions():
        choices = question.choices()
        kept = answers[question.name][source.pk] if source else next(iter(choices))
        said.append(choices.get(kept, kept))
    return f"{words} ({', '.join(said)})" if said else words


class NewProjectForm(ProjectForm):
    copy_of = forms.ChoiceField(
        label="Settings",
        required=False,
        help_text="Rule, task mix, criteria, kind of task; no data, no people.",
    )

    def __init__(self, *args: Any, projects: list[Project], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices: list[tuple[str, str, Project | None]] = [("", "Usual settings", None)]
        choices += [(one.slug, f"As in {one.name}", one) for one in projects]
        answers = {one.name: one.answers(projects) for one in registry.project_questions()}
        self.fields["copy_of"].choices = [
            (slug, _named(words, source, answers)) for slug, words, source in choices
        ]
        for question in registry.project_questions():
            asked = list(question.choices().items())
            if projects:
                asked.insert(0, ("", "As the settings above"))
            self.fields[question.name] = forms.ChoiceField(
                label=question.label,
                choices=asked,
                initial=asked[0][0],
                required=False,
                widget=forms.RadioSelect,
            )
            self.fields[question.name].hide_optional = True

    def answers(self) -> dict[str, str]:
        """What was chosen."""
        asked = [question.name for question in registry.project_questions()]
        return {n: self.cleaned_data[n] for n in asked if self.cleaned_data[n]}


class RoleForm(forms.Form):
    role = forms.ChoiceField(label="Role", choices=Role.choices)


class TokenForm(forms.Form):
    name = forms.CharField(label=_("Name"), max_length=80)
    scopes = forms.MultipleChoiceField(
        label=_("Scopes"),
        choices=[(name, format_lazy("{}: {}", name, text)) for name, text in SCOPES.items()],
        initial=list(DEFAULT_SCOPES),
        widget=forms.CheckboxSelectMultiple,
    )
    days = forms.IntegerField(
        label=_("Days until it expires"), min_value=1, max_value=TOKEN_MAX_DAYS, initial=90
    )


_DAY = forms.DateInput({"type": "date"}, format="%Y-%m-%d")


class AuditFilter(forms.Form):
    """What the audit log is narrowed to."""

    q = forms.CharField(label="Search", required=False, max_length=200)
    action = forms.CharField(required=False, max_length=60)
    since = forms.DateField(label="From", required=False, widget=_DAY)
    until = forms.DateField(label="To", required=False, widget=_DAY)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            field.hide_optional = True


class ErasureForm(forms.Form):
    """What becomes of the work of a person who is erased."""

    votes = forms.ChoiceField(
        label="Their votes",
        widget=forms.RadioSelect,
        initial="keep",
        choices=[
            ("keep", "Keep them under a number"),
            ("discard", "Discard them: pairs are decided again without them, and others are asked"),
        ],
    )
    remarks = forms.ChoiceField(
        label="What they wrote about pairs",
        widget=forms.RadioSelect,
        initial="remove",
        choices=[("remove", "Remove it"), ("keep", "Keep it, by nobody")],
    )
    confirm = forms.CharField(label="Type their sign-in name", max_length=150)

    def __init__(self, *args: Any, person: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.person = person

    def clean_confirm(self) -> str:
        if self.cleaned_data["confirm"].strip() != self.person.username:
            raise ValidationError(f"Their sign-in name is {self.person.username}.")
        return str(self.cleaned_data["confirm"])
