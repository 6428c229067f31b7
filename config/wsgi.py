"""Pages and API. Run by granian (`manage.py up`, compose)."""

import multiprocessing
import os
import signal

from django.core.wsgi import get_wsgi_application
from django.urls import reverse

from apps.common.processes import end_with_parent

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
application = get_wsgi_application()
# Every view is imported now, before this process listens: otherwise its first visitors wait for it.
reverse("home")

if multiprocessing.parent_process() is not None:  # a worker of granian, which may be killed
    end_with_parent(os.getppid(), signal.SIGKILL)()
