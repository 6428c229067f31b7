#!/bin/bash
# Run once by the image of PostgreSQL, when its volume is empty: the two roles of Concord.
set -euo pipefail
psql -v ON_ERROR_STOP=1 --username postgres --dbname "$POSTGRES_DB" -f /etc/concord/roles.sql
psql -v ON_ERROR_STOP=1 --username postgres --dbname "$POSTGRES_DB" \
  -v owner="$(cat /run/secrets/database_owner_password)" -v app="$(cat /run/secrets/database_password)" <<'SQL'
alter role concord_owner password :'owner';
alter role concord password :'app';
SQL
