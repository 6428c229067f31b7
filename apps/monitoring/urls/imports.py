from django.urls import path

from apps.monitoring.views import imports

urlpatterns = [path("<slug:slug>/runs/import/", imports.run_import, name="run_import")]
