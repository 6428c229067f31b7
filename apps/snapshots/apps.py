from django.apps import AppConfig


class SnapshotsConfig(AppConfig):
    name = "apps.snapshots"
    label = "snapshots"

    def ready(self) -> None:
        from apps.common.registry import NavItem, nav_add

        nav_add(
            NavItem(
                rank=30,
                label="Datasets",
                url_name="snapshots:list",
                icon="database",
                section="datasets",
                roles=frozenset({"reviewer", "engineer", "admin"}),
            )
        )
