"""People, the projects they meet in, roles, API tokens, the audit log."""

from django.apps import AppConfig
from django.contrib.auth.signals import user_logged_in

from apps.common.registry import NavItem, nav_add


class AccountsConfig(AppConfig):
    name = "apps.accounts"
    label = "accounts"

    def ready(self) -> None:
        from apps.accounts.middleware import session_begins

        user_logged_in.connect(session_begins, dispatch_uid="accounts.session_begins")
        admins = frozenset({"admin"})
        nav_add(NavItem(90, "People", "accounts:people", "users", "people", admins))
        nav_add(NavItem(91, "Audit log", "accounts:audit_log", "scroll-text", "audit_log", admins))
