"""How the project labels: rule, overlap, queue, screen. Admins only."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from apps.accounts.permissions import ADMIN, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.labeling import selectors, services
from apps.labeling.forms.settings import LabelingSettingsForm
from apps.labeling.models import LabelingSettings
from measures.voting import chance_keep_rate


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(frozenset({ADMIN}))
def settings(request: Request) -> HttpResponse:
    current = selectors.settings_get(project=request.project)
    form = LabelingSettingsForm(
        request.POST or None,
        current=current,
        n_open=selectors.open_count(project=request.project),
    )
    if request.method == "POST" and form.is_valid():
        try:
            services.labeling_settings_update(
                project=request.project, by=request.user, **form.changes()
            )
        except DomainError as error:
            form.add_error(error.field if error.field in form.fields else None, error.message)
        else:
            messages.success(request, "Saved.")
            return redirect("labeling:settings", request.project.slug)
    stored = selectors.settings_get(project=request.project)
    context = {
        "page_title": "Labeling settings",
        "nav": "settings",
        "form": form,
        "one_key": services.Questions.of(stored).one_key_submits,
        "chance": _chance(stored),
        "staffing": services.staffing(project=request.project),
    }
    return render(request, "labeling/settings.html", context, status=422 if form.errors else 200)


def _chance(current: LabelingSettings) -> dict[str, float]:
    """The share of comparisons that random voters would get through the stored rule."""
    rule = services.rule_of(current)
    votes = current.max_overlap
    return {
        "two_way": 100 * chance_keep_rate(rule, votes, 2, stop_when_met=True),
        "with_ties": 100 * chance_keep_rate(rule, votes, 3, stop_when_met=True),
        "votes": votes,
    }
