"""Which policy each stage names: requests, signatures, decisions and the history, append-only."""

import apps.common.models
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

FORWARD = """
-- Rows are added, never changed; they go only with their project, which is archived by then.
create function concord_promotion_kept() returns trigger language plpgsql as $$
declare
  owner text;
begin
  if tg_op = 'DELETE' then
    owner := to_jsonb(old) ->> 'project_id';
    if owner is null then
      select project_id::text into owner from evaluation_promotionrequest
      where id = to_jsonb(old) ->> 'request_id';
    end if;
    perform from accounts_project p where p.id::text = owner and p.archived_at is not null;
    if found then
      return old;
    end if;
  end if;
  raise exception '% is append-only', tg_table_name using errcode = 'restrict_violation';
end $$;

-- What a decision or a signature repeats of its request is the request's.
alter table evaluation_promotiondecision add constraint promotion_decision_of_request
  foreign key (request_id, requested_by_id, is_open)
  references evaluation_promotionrequest (id, requested_by_id, is_open);
alter table evaluation_overridesignature add constraint override_signature_of_request
  foreign key (request_id, requested_by_id, is_open)
  references evaluation_promotionrequest (id, requested_by_id, is_open);

-- An override stands on the signatures of both, and a stage names what was decided.
create function concord_override_signed() returns trigger language plpgsql as $$
begin
  if new.kind = 'overridden' and (
    select count(*) from evaluation_overridesignature s
    where s.request_id = new.request_id and s.by_id in (new.decided_by_id, new.seconded_by_id)
  ) < 2 then
    raise exception 'an override needs the signatures of two people'
      using errcode = 'check_violation', constraint = 'promotion_override_signed';
  end if;
  return new;
end $$;
create trigger evaluation_override_signed before insert on evaluation_promotiondecision
  for each row execute function concord_override_signed();

create function concord_stage_decided() returns trigger language plpgsql as $$
begin
  if new.cause in ('promotion', 'override') then
    perform from evaluation_promotionrequest r
    join evaluation_promotiondecision d on d.request_id = r.id
    where r.id = new.request_id and r.project_id = new.project_id and r.stage = new.stage
      and r.checkpoint_id = new.checkpoint_id
      and d.kind = case new.cause when 'promotion' then 'approved' else 'overridden' end;
    if not found then
      raise exception 'a stage names what was approved'
        using errcode = 'check_violation', constraint = 'stage_change_was_decided';
    end if;
  end if;
  return new;
end $$;
create trigger evaluation_stage_decided before insert on evaluation_stagechange
  for each row execute function concord_stage_decided();
"""
BACKWARD = """
drop trigger evaluation_stage_decided on evaluation_stagechange;
drop trigger evaluation_override_signed on evaluation_promotiondecision;
drop function concord_stage_decided();
drop function concord_override_signed();
alter table evaluation_overridesignature drop constraint override_signature_of_request;
alter table evaluation_promotiondecision drop constraint promotion_decision_of_request;
drop function concord_promotion_kept();
"""
TABLES = (
    "evaluation_promotionrequest",
    "evaluation_overridesignature",
    "evaluation_promotiondecision",
    "evaluation_stagechange",
)
KEEP = "".join(
    f"create trigger {table}_kept before update or delete on {table} "
    "for each row execute function concord_promotion_kept();\n"
    f"create trigger {table}_never_emptied before truncate on {table} "
    "for each statement execute function concord_refuse_change();\n"
    for table in TABLES
)
RELEASE = "".join(
    f"drop trigger {table}_never_emptied on {table};\ndrop trigger {table}_kept on {table};\n"
    for table in TABLES
)


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0006_notice_values'),
        ('evaluation', '0002_head_to_head'),
        ('training', '0007_served_models'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='PromotionRequest',
            fields=[
                ('id', models.CharField(default=apps.common.models.short_id, editable=False, max_length=16, primary_key=True, serialize=False)),
                ('stage', models.CharField(choices=[('candidate', 'Candidate'), ('staging', 'Staging'), ('production', 'Production')], max_length=10)),
                ('share', models.PositiveSmallIntegerField(default=100, help_text='per cent of the traffic; under 100 the model before keeps the rest')),
                ('reason', models.CharField(blank=True, max_length=1000)),
                ('evidence', models.JSONField(help_text='every line as it stood')),
                ('evidence_sha256', models.CharField(max_length=64)),
                ('is_open', models.BooleanField()),
                ('requested_name', models.CharField(max_length=150)),
                ('at', models.DateTimeField(auto_now_add=True)),
                ('checkpoint', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='promotions', to='training.checkpoint')),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='promotions', to='accounts.project')),
                ('requested_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-at'],
            },
        ),
        migrations.CreateModel(
            name='PromotionDecision',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('is_open', models.BooleanField()),
                ('kind', models.CharField(choices=[('approved', 'approved'), ('overridden', 'approved by override'), ('rejected', 'rejected'), ('withdrawn', 'withdrawn')], max_length=10)),
                ('decided_name', models.CharField(max_length=150)),
                ('decided_role', models.CharField(choices=[('annotator', 'Annotator'), ('reviewer', 'Reviewer'), ('engineer', 'ML engineer'), ('admin', 'Admin')], max_length=12)),
                ('seconded_name', models.CharField(blank=True, max_length=150)),
                ('seconded_role', models.CharField(blank=True, choices=[('annotator', 'Annotator'), ('reviewer', 'Reviewer'), ('engineer', 'ML engineer'), ('admin', 'Admin')], max_length=12)),
                ('reason', models.CharField(blank=True, max_length=1000)),
                ('at', models.DateTimeField(auto_now_add=True)),
                ('decided_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('requested_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('seconded_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('request', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='decision', to='evaluation.promotionrequest')),
            ],
            options={
                'ordering': ['-at'],
            },
        ),
        migrations.CreateModel(
            name='OverrideSignature',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('is_open', models.BooleanField(default=False)),
                ('by_name', models.CharField(max_length=150)),
                ('role', models.CharField(choices=[('annotator', 'Annotator'), ('reviewer', 'Reviewer'), ('engineer', 'ML engineer'), ('admin', 'Admin')], max_length=12)),
                ('reason', models.CharField(max_length=1000)),
                ('at', models.DateTimeField(auto_now_add=True)),
                ('by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('requested_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('request', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='signatures', to='evaluation.promotionrequest')),
            ],
            options={
                'ordering': ['id'],
            },
        ),
        migrations.CreateModel(
            name='StageChange',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('stage', models.CharField(choices=[('candidate', 'Candidate'), ('staging', 'Staging'), ('production', 'Production')], max_length=10)),
                ('number', models.PositiveIntegerField(help_text='1, 2, … in its stage: of two at once, one wins')),
                ('share', models.PositiveSmallIntegerField(default=100)),
                ('cause', models.CharField(choices=[('promotion', 'promoted'), ('override', 'promoted by override'), ('revert', 'reverted'), ('share', 'share of traffic changed')], max_length=9)),
                ('back', models.PositiveIntegerField(blank=True, null=True)),
                ('reason', models.CharField(blank=True, max_length=1000)),
                ('by_name', models.CharField(max_length=150)),
                ('at', models.DateTimeField(default=django.utils.timezone.now)),
                ('by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('checkpoint', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='stage_changes', to='training.checkpoint')),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='stage_changes', to='accounts.project')),
                ('request', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='changes', to='evaluation.promotionrequest')),
                ('rest', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='training.checkpoint')),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.AddIndex(
            model_name='promotionrequest',
            index=models.Index(fields=['project', '-at'], name='promotion_by_project'),
        ),
        migrations.AddConstraint(
            model_name='promotionrequest',
            constraint=models.CheckConstraint(condition=models.Q(('share__lte', 100)), name='promotion_share_in_percent'),
        ),
        migrations.AddConstraint(
            model_name='promotionrequest',
            constraint=models.UniqueConstraint(fields=('id', 'requested_by', 'is_open'), name='promotion_request_repeated'),
        ),
        migrations.AddConstraint(
            model_name='promotiondecision',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('decided_by', models.F('requested_by')), ('kind', 'withdrawn')), models.Q(models.Q(('kind', 'withdrawn'), _negated=True), models.Q(('decided_by', models.F('requested_by')), _negated=True)), _connector='OR'), name='promotion_approver_is_not_requester'),
        ),
        migrations.AddConstraint(
            model_name='promotiondecision',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('kind', 'approved'), _negated=True), models.Q(('decided_role', 'admin'), ('is_open', True)), _connector='OR'), name='promotion_approved_by_admin_through_open_gate'),
        ),
        migrations.AddConstraint(
            model_name='promotiondecision',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('kind', 'overridden'), _negated=True), models.Q(('is_open', False), ('seconded_by__isnull', False), models.Q(('seconded_by', models.F('decided_by')), _negated=True), models.Q(('seconded_by', models.F('requested_by')), _negated=True), models.Q(('decided_role', 'admin'), ('seconded_role', 'admin'), _connector='OR'), models.Q(('reason', ''), _negated=True)), _connector='OR'), name='promotion_overridden_by_two_others'),
        ),
        migrations.AddConstraint(
            model_name='promotiondecision',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('kind', 'rejected'), _negated=True), models.Q(('reason', ''), _negated=True), _connector='OR'), name='promotion_rejection_says_why'),
        ),
        migrations.AddConstraint(
            model_name='overridesignature',
            constraint=models.UniqueConstraint(fields=('request', 'by'), name='override_signed_once_each'),
        ),
        migrations.AddConstraint(
            model_name='overridesignature',
            constraint=models.CheckConstraint(condition=models.Q(('by', models.F('requested_by')), _negated=True), name='override_signer_is_not_requester'),
        ),
        migrations.AddConstraint(
            model_name='overridesignature',
            constraint=models.CheckConstraint(condition=models.Q(('role__in', ['reviewer', 'admin'])), name='override_signer_judges'),
        ),
        migrations.AddConstraint(
            model_name='overridesignature',
            constraint=models.CheckConstraint(condition=models.Q(('reason', ''), _negated=True), name='override_signature_says_why'),
        ),
        migrations.AddConstraint(
            model_name='overridesignature',
            constraint=models.CheckConstraint(condition=models.Q(('is_open', False)), name='override_of_a_closed_gate'),
        ),
        migrations.AddIndex(
            model_name='stagechange',
            index=models.Index(fields=['project', '-at'], name='stage_change_by_project'),
        ),
        migrations.AddConstraint(
            model_name='stagechange',
            constraint=models.UniqueConstraint(fields=('project', 'stage', 'number'), name='stage_change_numbered'),
        ),
        migrations.AddConstraint(
            model_name='stagechange',
            constraint=models.UniqueConstraint(condition=models.Q(('cause__in', ['promotion', 'override'])), fields=('request',), name='stage_change_once_per_request'),
        ),
        migrations.AddConstraint(
            model_name='stagechange',
            constraint=models.CheckConstraint(condition=models.Q(('number__gte', 1), models.Q(('back__isnull', True), models.Q(('back__gte', 1), ('back__lt', models.F('number'))), _connector='OR')), name='stage_change_goes_back'),
        ),
        migrations.AddConstraint(
            model_name='stagechange',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('rest__isnull', True), ('share', 100)), ('share__lt', 100), _connector='OR'), name='stage_change_shares_traffic'),
        ),
        migrations.AddConstraint(
            model_name='stagechange',
            constraint=models.CheckConstraint(condition=models.Q(('cause__in', ['promotion', 'override']), models.Q(('reason', ''), _negated=True), _connector='OR'), name='stage_change_says_why'),
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
        migrations.RunSQL(KEEP, RELEASE),
    ]
