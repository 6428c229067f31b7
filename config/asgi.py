"""Event streams, in a process of their own (`uvicorn config.asgi:application`); no page comes here.

An open stream is a socket each, and the limit of open files that a process begins with is often
1,024: it is raised as far as it may be. Where processors are short, pages go first.
"""

import os
import resource

from django.core.wsgi import get_wsgi_application

from apps.common import environment

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
environment.process = "web"
get_wsgi_application()  # loads the apps

from django.conf import settings  # noqa: E402

from apps.common.streams import EventStreams  # noqa: E402
from apps.training.streams import RunFeed  # noqa: E402

_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
os.nice(5)
application = EventStreams(RunFeed(), most=settings.STREAM_WATCHERS)
