from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class SnapshotsConfig(AppConfig):
    name = "apps.snapshots"
    label = "snapshots"

    def ready(self) -> None:
        from apps.accounts.selectors import named_by
        from apps.common.registry import (
            NavItem,
            audit_subjects_add,
            comparison_uses_add,
            dataset_maker_set,
            heavy_add,
            nav_add,
            person_datasets_add,
            upload_add,
            vote_traces_add,
            vote_uses_add,
        )
        from apps.snapshots.models import Snapshot
        from apps.snapshots.selectors.lineage import comparison_trace, frozen_in, vote_trace
        from apps.snapshots.services.erasing import person_datasets
        from apps.snapshots.services.importing import dataset_from_file

        nav_add(
            NavItem(
                rank=30,
                label=_("Datasets"),
                url_name="snapshots:list",
                icon="database",
                section="datasets",
                roles=frozenset({"reviewer", "engineer", "admin"}),
                tabs=frozenset({"engineer"}),
            )
        )
        nav_add(
            NavItem(
                rank=46,
                label=_("Data readiness"),
                url_name="snapshots:ready",
                icon="target",
                section="ready",
                roles=frozenset({"reviewer", "engineer", "admin"}),
            )
        )
        audit_subjects_add(("snapshot",), named_by(Snapshot, "name", "snapshots:detail"))
        vote_uses_add(frozen_in)
        person_datasets_add(person_datasets)
        dataset_maker_set(dataset_from_file)
        upload_add("snapshots:import")
        heavy_add(
            *(f"snapshots:{name}" for name in ("report_preview", "compare", "verify", "download")),
            *(f"snapshots:{name}" for name in ("export_file", "private", "depth_start", "create")),
            *(f"api:snapshot_{name}" for name in ("preview", "verify", "changes")),
        )
        vote_traces_add(vote_trace)
        comparison_uses_add(comparison_trace, page="snapshots:comparison_lineage")
