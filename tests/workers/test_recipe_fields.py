"""What the web side's forms know of the recipes is what the recipes say."""

from workers.config.__main__ import document
from workers.contract.recipes import FILE, recipe_fields


def test_the_copy_of_the_declarations_is_up_to_date():
    assert FILE.read_text() == document(), "run: python -m workers.config"


def test_a_field_keeps_its_type_limits_and_choices():
    fields = {field.name: field for field in recipe_fields("ppo")}
    assert (fields["batch_size"].type, fields["batch_size"].minimum) == ("int", 2)
    assert fields["learning_rate"].above == 0.0
    assert fields["kl_estimator"].choices == ("k1", "k2", "k3", "full")
    assert fields["kl_horizon"].optional
    assert fields["reward"].type == "object"


def test_a_kind_without_a_recipe_has_no_fields():
    assert recipe_fields("nothing") == []
