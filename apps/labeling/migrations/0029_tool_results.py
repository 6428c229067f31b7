"""Long results of tools lie apart from the messages of their run. The column `messages` stays as it
is; in Python it is `brief`, and `messages` reads what is cut there."""

import django.db.models.deletion
from django.db import migrations, models

# The same as `Spoken.messages`, for statements; one of the two owners is null.
WHOLE = """
create function labeling_whole(messages jsonb, prompt bigint, response bigint) returns jsonb
language plpgsql stable parallel safe as $$
begin
  if messages is null or not messages @? '$[*].cut' then
    return messages;
  end if;
  return (
    select jsonb_agg(
      case when t.content is null then m.value
           else (m.value - 'cut') || jsonb_build_object('content', t.content) end order by m.n)
    from jsonb_array_elements(messages) with ordinality m(value, n)
    left join labeling_toolresult t
      on t.place = m.n - 1 and (t.prompt_id = prompt or t.response_id = response));
end $$;
"""
LET_GO = "drop function labeling_whole(jsonb, bigint, bigint)"
# Into the messages again, where the code before knows them.
PUT_BACK = """
update labeling_prompt p set messages = labeling_whole(p.messages, p.id, null)
where exists (select from labeling_toolresult t where t.prompt_id = p.id);
update labeling_response r set messages = labeling_whole(r.messages, null, r.id)
where exists (select from labeling_toolresult t where t.response_id = r.id);
"""


class Migration(migrations.Migration):

    dependencies = [
        ('labeling', '0028_stepwise_datasets'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RenameField('prompt', 'messages', 'brief'),
                migrations.AlterField(
                    'prompt', 'brief', models.JSONField(db_column='messages')
                ),
                migrations.RenameField('response', 'messages', 'brief'),
                migrations.AlterField(
                    'response', 'brief', models.JSONField(db_column='messages')
                ),
            ]
        ),
        migrations.CreateModel(
            name='ToolResult',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('place', models.PositiveSmallIntegerField(help_text='of the message, from 0')),
                ('sha256', models.CharField(max_length=64)),
                ('content', models.TextField()),
                ('prompt', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='results', to='labeling.prompt')),
                ('response', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='results', to='labeling.response')),
            ],
            options={
                'indexes': [models.Index(fields=['sha256'], name='tool_result_by_hash')],
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('prompt__isnull', True), ('response__isnull', False)), models.Q(('prompt__isnull', False), ('response__isnull', True)), _connector='OR'), name='tool_result_of_one'), models.UniqueConstraint(condition=models.Q(('prompt__isnull', False)), fields=('prompt', 'place'), name='tool_result_of_prompt'), models.UniqueConstraint(condition=models.Q(('response__isnull', False)), fields=('response', 'place'), name='tool_result_of_response')],
            },
        ),
        migrations.RunSQL(WHOLE, LET_GO),
        migrations.RunSQL(migrations.RunSQL.noop, PUT_BACK),
    ]
