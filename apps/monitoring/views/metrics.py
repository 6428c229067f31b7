"""`/metrics`: the state of the site for Prometheus."""

import ipaddress
import secrets
from collections.abc import Iterator

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse, HttpResponseNotFound
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from apps.common.http import client_address
from apps.monitoring.selectors.exposition import site_families

CACHED_SECONDS = 10  # whoever asks more often gets the same answer
CACHE_KEY = "metrics:exposition"


@never_cache
@require_safe
@login_not_required
def metrics(request: HttpRequest) -> HttpResponse:
    """Off (404) until METRICS_TOKEN or METRICS_ALLOW says who may read it; in DEBUG on."""
    if not (settings.METRICS_TOKEN or settings.METRICS_ALLOW or settings.DEBUG):
        return HttpResponseNotFound()
    if not _may_read(request):
        return HttpResponse(status=401, headers={"WWW-Authenticate": 'Bearer realm="metrics"'})
    text = cache.get(CACHE_KEY)
    if text is None:
        text = exposition()
        cache.set(CACHE_KEY, text, CACHED_SECONDS)
    return HttpResponse(text, content_type=CONTENT_TYPE_LATEST)


def _may_read(request: HttpRequest) -> bool:
    """With the token, or from one of the networks; either is enough."""
    if not (settings.METRICS_TOKEN or settings.METRICS_ALLOW):
        return settings.DEBUG
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    wanted = settings.METRICS_TOKEN
    is_bearer = wanted and scheme.lower() == "bearer"
    if is_bearer and secrets.compare_digest(given.strip().encode(), wanted.encode()):
        return True
    try:
        address = ipaddress.ip_address(client_address(request))
    except ValueError:
        return False
    return any(address in network for network in settings.METRICS_ALLOW)


def exposition() -> str:
    """In Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Site())
    return generate_latest(registry).decode()


class _Site(Collector):
    def describe(self) -> list[Metric]:
        return []  # reading everything once to learn the names would double the cost

    def collect(self) -> Iterator[Metric]:
        for family in site_families():
            gauge = GaugeMetricFamily(family.name, family.help, labels=family.labels)
            for values, number in family.rows:
                gauge.add_metric(values, number)
            yield gauge
