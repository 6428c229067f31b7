"""People, the projects they meet in, roles, API tokens, the audit log."""

from django.apps import AppConfig
from django.contrib.auth.signals import user_logged_in
from django.utils.translation import gettext_lazy as _

from apps.common.registry import (
    NavItem,
    SetupStep,
    audit_subjects_add,
    nav_add,
    setup_step_add,
    start_line_add,
    translated,
)


class AccountsConfig(AppConfig):
    name = "apps.accounts"
    label = "accounts"

    def ready(self) -> None:
        from apps.accounts.middleware import session_begins
        from apps.accounts.screens import invitations_named
        from apps.accounts.services.people import set_up_line

        audit_subjects_add(("invitation",), invitations_named)
        start_line_add(set_up_line)
        user_logged_in.connect(session_begins, dispatch_uid="accounts.session_begins")
        translated(
            *("home", "account_login", "account_reset_password", "account_reset_password_done"),
            *("account_reset_password_from_key", "accounts:sign_in", "accounts:sign_out"),
            *(f"accounts:{name}" for name in ("invitation", "projects", "project", "account")),
            *(f"accounts:{name}" for name in ("profile", "theme", "password")),
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
