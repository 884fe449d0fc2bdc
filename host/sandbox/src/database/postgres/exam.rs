//! What a login can do in PostgreSQL beside reading, asked of the server's own catalog.
//!
//! A read-only transaction stops every write to tables and sequences, also by functions of others. It
//! does not stop what reaches out of the transaction; logins that could do that are refused. The session's
//! own user is examined with every role that it may take on, since a statement can give up the role that
//! was set.

use tokio_postgres::Transaction;

use super::{DatabaseError, RoleFinding, refused};

/// Findings of one kind that are told; one is enough to refuse.
const TOLD_MAX: usize = 20;

/// Kind, what it is about, and whether lookups are refused for it.
const QUERY: &str = "
WITH me AS (
  SELECT r.* FROM pg_catalog.pg_roles r WHERE pg_catalog.pg_has_role(session_user, r.oid, 'MEMBER')
), found (refused, what) AS (
  SELECT true, 'the role ' || rolname || ' is a superuser, or may make roles or databases, replicate, or pass row security'
    FROM me WHERE rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls
  UNION ALL
  SELECT true, 'it is a member of ' || rolname FROM me WHERE rolname LIKE 'pg\\_%' AND rolname NOT IN
    ('pg_read_all_data', 'pg_monitor', 'pg_read_all_settings', 'pg_read_all_stats', 'pg_stat_scan_tables')
  UNION ALL
  SELECT true, 'the role ' || me.rolname || ' may write to ' || n.nspname || '.' || c.relname
    FROM me, pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
      AND n.nspname NOT LIKE 'pg\\_toast%' AND n.nspname NOT LIKE 'pg\\_temp\\_%'
      AND (pg_catalog.has_table_privilege(me.oid, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')
        OR pg_catalog.has_any_column_privilege(me.oid, c.oid, 'INSERT, UPDATE'))
  UNION ALL
  SELECT true, 'the role ' || me.rolname || ' may change the sequence ' || n.nspname || '.' || c.relname
    FROM me, pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'S' AND pg_catalog.has_sequence_privilege(me.oid, c.oid, 'UPDATE')
  UNION ALL
  SELECT true, 'the role ' || me.rolname || ' may reach out of the transaction by ' || n.nspname || '.' || p.proname
    FROM me, pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
      JOIN pg_catalog.pg_language l ON l.oid = p.prolang
      LEFT JOIN pg_catalog.pg_depend d ON d.objid = p.oid AND d.deptype = 'e'
        AND d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass
      LEFT JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid
    WHERE ((NOT l.lanpltrusted AND l.lanname NOT IN ('internal', 'c'))
        OR e.extname IN ('dblink', 'adminpack', 'pg_background', 'pg_cron', 'pg_net', 'http', 'plsh')
        OR (n.nspname = 'pg_catalog' AND p.proname IN ('lo_export', 'lo_import', 'pg_read_file', 'pg_read_binary_file',
          'pg_reload_conf', 'pg_rotate_logfile', 'pg_switch_wal', 'pg_promote', 'pg_create_restore_point',
          'pg_file_write', 'pg_file_unlink', 'pg_file_rename')))
      AND p.prorettype NOT IN ('pg_catalog.trigger'::pg_catalog.regtype, 'pg_catalog.event_trigger'::pg_catalog.regtype)
      AND pg_catalog.has_schema_privilege(me.oid, n.oid, 'USAGE')
      AND pg_catalog.has_function_privilege(me.oid, p.oid, 'EXECUTE')
  UNION ALL
  SELECT false, 'the role ' || me.rolname || ' may call ' || n.nspname || '.' || p.proname || ', which runs with the rights of '
      || pg_catalog.pg_get_userbyid(p.proowner) || ': its writes fail, a program that it starts would not'
    FROM me, pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
    WHERE p.prosecdef AND p.provolatile = 'v' AND n.nspname <> 'pg_catalog'
      AND p.prorettype NOT IN ('pg_catalog.trigger'::pg_catalog.regtype, 'pg_catalog.event_trigger'::pg_catalog.regtype)
      AND pg_catalog.has_schema_privilege(me.oid, n.oid, 'USAGE')
      AND pg_catalog.has_function_privilege(me.oid, p.oid, 'EXECUTE')
)
SELECT refused, what::text FROM found ORDER BY refused DESC, what LIMIT 100";

/// Every way in which the session's user, or a role that it may take on, can do more than read.
pub(super) async fn findings(
    transaction: &Transaction<'_>,
    role: Option<&str>,
) -> Result<Vec<RoleFinding>, DatabaseError> {
    let rows = transaction.query(QUERY, &[]).await.map_err(refused)?;
    let mut found = Vec::new();
    for row in rows.iter().take(TOLD_MAX) {
        let stops: bool = row.try_get(0).map_err(refused)?;
        found.push(RoleFinding { refused: stops, what: row.try_get(1).map_err(refused)? });
    }
    if let Some(role) = role {
        let member = "SELECT pg_catalog.pg_has_role(session_user, $1::text::name, 'MEMBER')";
        let row = transaction.query_one(member, &[&role]).await.map_err(refused)?;
        if !row.try_get::<_, bool>(0).map_err(refused)? {
            let what = format!("it may not take on the role {role} that the policy names");
            found.push(RoleFinding { refused: true, what });
        }
    }
    Ok(found)
}
