-- The two roles of Concord's database. Run it as a superuser in that database; it may be run again.
--
--   concord_owner  owns the tables; `manage.py migrate` uses it (DATABASE_OWNER_URL)
--   concord        reads and writes rows, and can neither change a table nor empty it, so what
--                  triggers keep (votes, audit events, frozen datasets) stays kept (DATABASE_URL)
--
-- The roles have no password here: give them one where the server asks for it.

do $$
begin
  perform pg_advisory_xact_lock(hashtext('concord roles'));
  if not exists (select from pg_roles where rolname = 'concord_owner') then
    create role concord_owner login;
  end if;
  if not exists (select from pg_roles where rolname = 'concord') then
    create role concord login;
  end if;
  execute format('grant connect, temporary on database %I to concord', current_database());
  execute format('grant connect, temporary, create on database %I to concord_owner',
                 current_database());
end $$;

revoke create on schema public from public;
grant usage, create on schema public to concord_owner;
grant usage on schema public to concord;

-- What an earlier role made.
do $$
declare made record;
begin
  for made in
    select c.oid::regclass as name from pg_class c
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'S')
      and c.relowner <> 'concord_owner'::regrole
      and not exists (select from pg_depend d
                      where d.objid = c.oid and d.deptype in ('a', 'i', 'e')
                        and d.classid = 'pg_class'::regclass)
  loop
    execute format('alter table %s owner to concord_owner', made.name);
  end loop;
  for made in
    select p.oid::regprocedure as name from pg_proc p
    where p.pronamespace = 'public'::regnamespace and p.proowner <> 'concord_owner'::regrole
      and not exists (select from pg_depend d where d.objid = p.oid and d.deptype = 'e')
  loop
    execute format('alter function %s owner to concord_owner', made.name);
  end loop;
end $$;

grant select, insert, update, delete on all tables in schema public to concord;
grant usage, select on all sequences in schema public to concord;
alter default privileges for role concord_owner in schema public
  grant select, insert, update, delete on tables to concord;
alter default privileges for role concord_owner in schema public
  grant usage, select on sequences to concord;

-- Fresh statistics after an import. Before PostgreSQL 17 only owners may ask for them.
do $$
begin
  if current_setting('server_version_num')::int >= 170000 then
    grant maintain on all tables in schema public to concord;
    alter default privileges for role concord_owner in schema public
      grant maintain on tables to concord;
  end if;
end $$;
