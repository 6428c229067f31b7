"""Pages and API. Run by granian (config/web.py)."""

import os
import sys

from django.core.wsgi import get_wsgi_application
from django.urls import reverse

from apps.common import environment

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
environment.process = "web"
application = get_wsgi_application()
# Every view is imported now, before this process listens: otherwise its first visitors wait for it.
reverse("home")
# A vote asks the database a dozen times, and after each answer waits for its turn among the threads
# of this process. Python's 5 ms for that turn would be most of its time beside a busy page.
sys.setswitchinterval(0.0005)
