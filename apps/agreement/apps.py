from django.apps import AppConfig


class AgreementConfig(AppConfig):
    name = "apps.agreement"
    label = "agreement"

    def ready(self) -> None:
        from apps.common.registry import NavItem, nav_add

        nav_add(
            NavItem(
                rank=20,
                label="Agreement",
                url_name="agreement:overview",
                icon="chart-column",
                section="agreement",
                roles=frozenset({"reviewer", "engineer", "admin"}),
            )
        )
