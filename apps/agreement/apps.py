from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class AgreementConfig(AppConfig):
    name = "apps.agreement"
    label = "agreement"

    def ready(self) -> None:
        from apps.agreement.services.alarms import due_figures, vote_figures
        from apps.common.registry import (
            NavItem,
            annotator_pages_set,
            dispute_page_set,
            heavy_add,
            nav_add,
            project_figures_add,
        )

        project_figures_add(vote_figures, of_votes=True)
        project_figures_add(due_figures)
        heavy_add(
            *(f"agreement:{name}" for name in ("refresh", "annotators_refresh", "disagreements")),
            *(f"agreement:{name}" for name in ("decisions_apply", "decisions_compare")),
            *(f"api:{name}" for name in ("decisions_preview", "decisions_rule")),
            *(f"api:{name}" for name in ("decisions_ways", "decisions_compare")),
        )
        readers = frozenset({"reviewer", "engineer", "admin"})
        nav_add(
            NavItem(
                rank=40,
                label=_("Agreement"),
                url_name="agreement:overview",
                icon="chart-column",
                section="agreement",
                roles=readers,
            )
        )
        nav_add(NavItem(24, _("Results"), "agreement:results", "star", "results", readers))
        nav_add(
            NavItem(
                44,
                _("Disputes"),
                "agreement:disputes",
                "flag",
                "disputes",
                readers,
                tabs=frozenset({"reviewer"}),
            )
        )
        nav_add(NavItem(45, _("Audits"), "agreement:audits", "eye", "audits", readers))
        dispute_page_set("agreement:dispute")
        annotator_pages_set("agreement:annotators", "agreement:annotator")
