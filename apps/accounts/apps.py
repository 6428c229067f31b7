"""People, the projects they meet in, roles, API tokens, the audit log."""

from django.apps import AppConfig
from django.contrib.auth.signals import user_logged_in
from django.utils.translation import gettext_lazy as _

from apps.common.registry import (
    NavItem,
    SetupStep,
    audit_subjects_add,
    heavy_add,
    nav_add,
    setup_step_add,
    start_line_add,
    translated,
)


class AccountsConfig(AppConfig):
    name = "apps.accounts"
    label = "accounts"

    def ready(self) -> None:
        from allauth.mfa import signals

        from apps.accounts import backends
        from apps.accounts.middleware import session_begins
        from apps.accounts.screens import invitations_named
        from apps.accounts.services.people import set_up_line

        audit_subjects_add(("invitation",), invitations_named)
        start_line_add(set_up_line)
        heavy_add(
            *(f"accounts:project_{name}" for name in ("delete", "export")),
            *(f"accounts:{name}" for name in ("own_data", "person_data", "person_erase")),
            *(f"api:{name}" for name in ("project_delete", "audit_log", "site_audit_log")),
        )
        user_logged_in.connect(session_begins, dispatch_uid="accounts.session_begins")
        signals.authenticator_added.connect(backends.second_factor_added)
        signals.authenticator_removed.connect(backends.second_factor_removed)
        signals.authenticator_reset.connect(backends.codes_made)
        signals.authenticator_used.connect(backends.code_used)
        translated(
            *("home", "account_login", "account_reset_password", "account_reset_password_done"),
            *("account_reset_password_from_key", "accounts:sign_in", "accounts:sign_out"),
            *(f"accounts:{name}" for name in ("invitation", "projects", "project", "account")),
            *(f"accounts:{name}" for name in ("profile", "theme", "password")),
            *(f"accounts:{name}" for name in ("sign_in_again", "sent_form")),
            *(f"accounts:provider_{name}" for name in ("connect", "disconnect")),
            *(f"accounts:{name}" for name in ("sessions", "session_end")),
            *("openid_connect_login", "openid_connect_callback", "mfa_authenticate"),
            *(f"mfa_{name}" for name in ("index", "activate_totp", "deactivate_totp")),
            *(f"mfa_{name}" for name in ("view_recovery_codes", "generate_recovery_codes")),
            *(f"mfa_{name}" for name in ("add_webauthn", "remove_webauthn", "login_webauthn")),
            *(
                f"accounts:{name}"
                for name in ("token_create", "token_revoke", "own_data", "erasure_ask")
            ),
        )
        admins = frozenset({"admin"})
        setup_step_add(
            SetupStep(
                40,
                _("People"),
                "accounts:people",
                lambda project: project.memberships.count() > 1 or project.invitations.exists(),
                within=("accounts:invite", "accounts:invitation_change"),
            )
        )
        nav_add(
            NavItem(
                92,
                _("Name, archive"),
                "accounts:project_settings",
                "folder",
                "project_settings",
                admins,
            )
        )
        nav_add(NavItem(90, _("People"), "accounts:people", "users", "people", admins))
        nav_add(
            NavItem(99, _("Audit log"), "accounts:audit_log", "scroll-text", "audit_log", admins)
        )
