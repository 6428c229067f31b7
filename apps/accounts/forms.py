"""Forms of the people pages. Rules live in services; a service's refusal lands on its field."""

from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm
from django.core.exceptions import ValidationError

from apps.accounts import services, throttle
from apps.accounts.models import DEFAULT_SCOPES, SCOPES, Role, User
from apps.accounts.services import TOKEN_MAX_DAYS
from apps.common.http import client_address
from apps.common.refusals import log_denied


class SignInForm(AuthenticationForm):
    """Name and password, counted: too many failures from one place wait."""

    username = forms.CharField(
        label="Username",
        max_length=150,
        widget=forms.TextInput(
            attrs={"autofocus": True, "autocomplete": "username", "autocapitalize": "none"}
        ),
    )
    password = forms.CharField(
        label="Password",
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )
    error_messages = {
        "invalid_login": "The name or the password is wrong.",
        "inactive": "The name or the password is wrong.",
    }

    def clean(self) -> dict[str, Any]:
        name = self.cleaned_data.get("username", "")
        attempt = throttle.Try.of(self.request, name)
        if seconds := attempt.seconds_to_wait():
            log_denied(self.request, 429, "sign-in: too many failed tries")
            raise ValidationError(
                f"Too many failed tries. Wait {_duration(seconds)} and try again, or ask an admin "
                "for a new password.",
                code="too_many_tries",
            )
        try:
            cleaned = super().clean()
        except ValidationError:
            failures = attempt.count_failure()
            log_denied(self.request, 401, "sign-in: wrong name or password")
            services.sign_in_failed(
                username=name, address=client_address(self.request), failures=failures
            )
            raise
        attempt.forget_failures()
        return cleaned


def _duration(seconds: int) -> str:
    return f"{seconds} seconds" if seconds < 60 else f"{-(-seconds // 60)} minutes"


class PasswordForm(PasswordChangeForm):
    """Django's, without its autofocus: it is one of several forms on its page."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["old_password"].widget.attrs.pop("autofocus", None)
        self.fields[
            "new_password1"
        ].help_text = "At least ten characters; not a common one, and not like your name."
        self.fields["new_password2"].label = "New password again"
        self.fields["new_password2"].help_text = ""


class ProfileForm(forms.ModelForm):
    class Meta:
        model = User
        fields = ("display_name", "email")
        labels = {"display_name": "Name shown to others", "email": "E-mail"}


class AddPersonForm(forms.Form):
    """Adds somebody who has an account."""

    username = forms.CharField(
        label="Sign-in name", max_length=150, widget=forms.TextInput({"autocomplete": "off"})
    )
    role = forms.ChoiceField(label="Role", choices=Role.choices)

    def clean_username(self) -> str:
        name = self.cleaned_data["username"].strip()
        self.person = User.objects.filter(username=name, is_active=True).first()
        if self.person is None:
            raise ValidationError(
                f"Nobody has the sign-in name '{name}'. Create an account below instead."
            )
        return name


class NewPersonForm(forms.Form):
    """Makes an account and adds it; the temporary password is shown once."""

    new_username = forms.CharField(
        label="Sign-in name", max_length=150, widget=forms.TextInput({"autocomplete": "off"})
    )
    display_name = forms.CharField(label="Name shown to others", max_length=150, required=False)
    email = forms.EmailField(label="E-mail", required=False)
    new_role = forms.ChoiceField(label="Role", choices=Role.choices)


class RoleForm(forms.Form):
    role = forms.ChoiceField(label="Role", choices=Role.choices)


class TokenForm(forms.Form):
    name = forms.CharField(label="Name", max_length=80)
    scopes = forms.MultipleChoiceField(
        label="Scopes",
        choices=[(name, f"{name}: {text}") for name, text in SCOPES.items()],
        initial=list(DEFAULT_SCOPES),
        widget=forms.CheckboxSelectMultiple,
    )
    days = forms.IntegerField(
        label="Days until it expires", min_value=1, max_value=TOKEN_MAX_DAYS, initial=90
    )
