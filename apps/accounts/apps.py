"""People, the projects they meet in, roles, API tokens, the audit log."""

from django.apps import AppConfig

from apps.common.registry import NavItem, nav_add


class AccountsConfig(AppConfig):
    name = "apps.accounts"
    label = "accounts"

    def ready(self) -> None:
        admins = frozenset({"admin"})
        nav_add(NavItem(90, "People", "accounts:people", "users", "people", admins))
        nav_add(NavItem(91, "Audit log", "accounts:audit_log", "scroll-text", "audit_log", admins))
