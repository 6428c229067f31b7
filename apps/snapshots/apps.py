from django.apps import AppConfig


class SnapshotsConfig(AppConfig):
    name = "apps.snapshots"
    label = "snapshots"

    def ready(self) -> None:
        from apps.common.registry import NavItem, nav_add, vote_uses_add
        from apps.snapshots.lineage import frozen_in

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
        vote_uses_add(frozen_in)
