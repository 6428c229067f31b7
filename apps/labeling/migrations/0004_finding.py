"""The words that comparisons are searched by, the orders of their list, and what people keep of it."""

import apps.common.models
import django.contrib.postgres.indexes
import django.contrib.postgres.search
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

# As it was when this was written; see `apps.labeling.models.comparisons`.
MODEL_NAME = """case {0}.origin
  when 'model' then coalesce(nullif({0}.origin_ref, ''), {0}.metadata ->> 'model', '')
  when 'import' then coalesce({0}.metadata ->> 'model', '') else '' end"""

FORWARD = """
alter table labeling_searchdocument add constraint searchdocument_of_comparison
  foreign key (comparison_id) references labeling_comparison on delete cascade;

-- Text as words in lower case between blanks. No stemming and no stop words: the same for every
-- language, and a prefix finds the other forms of a word. Scripts without blanks between words are
-- cut into characters, which are searched as a phrase.
create function concord_words(t text) returns text language sql immutable parallel safe as $$
  select regexp_replace(
    case when octet_length(t) = length(t) then lower(t)
      else regexp_replace(lower(t), '([\\u0e00-\\u0e7f\\u3040-\\u30ff\\u3400-\\u9fff\\uf900-\\ufaff])',
                          ' \\1 ', 'g')
    end, '[^[:alnum:]]+', ' ', 'g')
$$;

-- The words of a conversation: 80,000 characters, since a search document holds one megabyte.
create function concord_said(messages jsonb) returns text language sql immutable parallel safe as $$
  select concord_words(left(string_agg(content #>> '{}', ' '), 80000))
  from jsonb_path_query(messages, '$[*].content') content
$$;

create function concord_comparisons_index(ids bigint[]) returns void language sql as $$
  with read as materialized (
    select c.id, c.project_id, c.external_id, c.batch, c.created_at, p.topic,
           MODEL_A as model_a, MODEL_B as model_b,
           p.messages as prompt, a.messages as a, b.messages as b
    from unnest(ids) t(id)
    join labeling_comparison c on c.id = t.id
    join labeling_prompt p on p.id = c.prompt_id
    join labeling_response a on a.id = c.response_a_id
    join labeling_response b on b.id = c.response_b_id
  ), written as (
    insert into labeling_searchdocument (comparison_id, document)
    select id,
           to_tsvector('simple', concat_ws(' ', concord_said(prompt), concord_said(a),
                                           concord_said(b)))
           || array_to_tsvector(array(
                select distinct '=' || kind || ':' || value
                from (values ('p', project_id::text), ('t', topic), ('m', model_a), ('m', model_b),
                             ('i', lower(coalesce(nullif(external_id, ''), id::text)))
                     ) f(kind, value)
                where value <> ''))
    from read
    on conflict do nothing
  ), found as (
    select project_id, kind, value, date_trunc('day', min(created_at)) as first_at,
           date_trunc('day', max(created_at)) + interval '1 day' as last_at
    from read cross join lateral (
      values ('batch', batch), ('topic', topic), ('model', model_a), ('model', model_b)
    ) f(kind, value)
    where value <> '' group by 1, 2, 3
  )
  -- a value that is known already takes no lock: imports that name it do not wait for each other
  insert into labeling_facet (project_id, kind, value, first_at, last_at)
  select * from found
  where not exists (
    select from labeling_facet k
    where (k.project_id, k.kind, k.value) = (found.project_id, found.kind, found.value)
      and k.first_at <= found.first_at and k.last_at >= found.last_at)
  order by 1, 2, 3
  on conflict (project_id, kind, value) do update set
    first_at = least(labeling_facet.first_at, excluded.first_at),
    last_at = greatest(labeling_facet.last_at, excluded.last_at)
$$;

-- Up to 500 rows are written with the insert; an import of thousands leaves them to a worker.
create function concord_comparisons_added() returns trigger language plpgsql as $$
begin
  if (select count(*) from (select from added limit 501) few) <= 500 then
    perform concord_comparisons_index((select array_agg(id) from added));
  else
    insert into labeling_searchpending (project_id, first, last)
    select project_id, min(id), max(id) from added group by project_id;
  end if;
  return null;
end $$;
create trigger labeling_comparisons_added after insert on labeling_comparison
  referencing new table as added
  for each statement execute function concord_comparisons_added();

insert into labeling_searchpending (project_id, first, last)
select project_id, min(id), max(id) from labeling_comparison group by project_id;
""".replace("MODEL_A", MODEL_NAME.format("a")).replace("MODEL_B", MODEL_NAME.format("b"))
BACKWARD = """
drop trigger labeling_comparisons_added on labeling_comparison;
drop function concord_comparisons_added();
drop function concord_comparisons_index(bigint[]);
drop function concord_said(jsonb);
drop function concord_words(text);
alter table labeling_searchdocument drop constraint searchdocument_of_comparison;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0002_projects_and_invitations'),
        ('labeling', '0003_import_undone'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='BulkAction',
            fields=[
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('id', models.CharField(default=apps.common.models.short_id, editable=False, max_length=16, primary_key=True, serialize=False)),
                ('key', models.CharField(max_length=80)),
                ('action', models.CharField(max_length=8)),
                ('n_selected', models.PositiveIntegerField()),
                ('n_changed', models.PositiveIntegerField()),
                ('left_out', models.JSONField(default=dict, help_text='{why: how many}')),
            ],
        ),
        migrations.CreateModel(
            name='Facet',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('batch', 'Import'), ('topic', 'Topic'), ('model', 'Model')], max_length=5)),
                ('value', models.TextField()),
                ('first_at', models.DateTimeField()),
                ('last_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='SavedView',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('name', models.CharField(max_length=60)),
                ('query', models.CharField(blank=True, help_text="of the page's address", max_length=2000)),
                ('is_shared', models.BooleanField(default=False)),
            ],
        ),
        migrations.CreateModel(
            name='SearchDocument',
            fields=[
                ('comparison', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='words', serialize=False, to='labeling.comparison')),
                ('document', django.contrib.postgres.search.SearchVectorField()),
            ],
        ),
        migrations.CreateModel(
            name='SearchPending',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('first', models.BigIntegerField()),
                ('last', models.BigIntegerField()),
            ],
        ),
        migrations.RemoveIndex(
            model_name='comparison',
            name='comparison_by_state',
        ),
        migrations.AddIndex(
            model_name='comparison',
            index=models.Index(fields=['project', 'created_at', 'id'], name='comparison_by_time'),
        ),
        migrations.AddIndex(
            model_name='comparison',
            index=models.Index(fields=['project', 'state', 'id'], name='comparison_by_state_id'),
        ),
        migrations.AddIndex(
            model_name='comparison',
            index=models.Index(fields=['project', 'n_votes', 'id'], name='comparison_by_votes'),
        ),
        migrations.AddIndex(
            model_name='comparison',
            index=models.Index(fields=['project', 'priority', 'id'], name='comparison_by_priority'),
        ),
        migrations.AddIndex(
            model_name='decision',
            index=models.Index(condition=models.Q(('winner__in', ['tie', 'both_bad'])), fields=['project', 'winner'], name='decision_by_rare_winner'),
        ),
        migrations.AddIndex(
            model_name='vote',
            index=models.Index(condition=models.Q(('is_current', True), models.Q(('flags', []), _negated=True)), fields=['project', 'comparison'], name='vote_flagged'),
        ),
        migrations.AddField(
            model_name='bulkaction',
            name='created_by',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='bulkaction',
            name='project',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.project'),
        ),
        migrations.AddField(
            model_name='facet',
            name='project',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.project'),
        ),
        migrations.AddField(
            model_name='savedview',
            name='owner',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='savedview',
            name='project',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.project'),
        ),
        migrations.AddIndex(
            model_name='searchdocument',
            index=django.contrib.postgres.indexes.GinIndex(fields=['document'], name='search_words'),
        ),
        migrations.AddField(
            model_name='searchpending',
            name='project',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.project'),
        ),
        migrations.AddConstraint(
            model_name='bulkaction',
            constraint=models.UniqueConstraint(fields=('project', 'key'), name='bulk_once'),
        ),
        migrations.AddConstraint(
            model_name='facet',
            constraint=models.UniqueConstraint(fields=('project', 'kind', 'value'), name='facet_once'),
        ),
        migrations.AddConstraint(
            model_name='savedview',
            constraint=models.UniqueConstraint(fields=('project', 'owner', 'name'), name='view_name_once'),
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
