"""The rows there are, against the constraints of `0026_writing`: read beside running votes."""

from django.contrib.postgres.operations import ValidateConstraint
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("labeling", "0026_writing")]

    operations = [
        ValidateConstraint(model_name="slot", name="slot_measures_a_vote"),
        ValidateConstraint(model_name="task", name="task_of_its_kind"),
        ValidateConstraint(model_name="task", name="task_scale_in_order"),
    ]
