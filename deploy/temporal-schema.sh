#!/bin/sh
# Brings the two databases of the Temporal service to the schema of this admin-tools image. Safe to run again.
# SQL_PLUGIN, SQL_HOST, SQL_PORT, SQL_USER and SQL_PASSWORD come from the environment.
set -eu

for database in temporal visibility; do
    case "$database" in
        temporal) name=temporal ;;
        visibility) name=temporal_visibility ;;
    esac
    temporal-sql-tool --db "$name" create
    temporal-sql-tool --db "$name" setup-schema -v 0.0
    temporal-sql-tool --db "$name" update-schema -d "/etc/temporal/schema/postgresql/v12/$database/versioned"
done
