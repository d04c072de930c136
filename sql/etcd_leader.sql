--
-- The SQL surface, with etcd absent: definitions, privileges, settings, and
-- what every function answers when nobody leads.
--

CREATE SCHEMA one;
CREATE SCHEMA two;
CREATE EXTENSION etcd_leader SCHEMA one;
ALTER EXTENSION etcd_leader SET SCHEMA two;
SELECT two.etcd_is_leader();
SELECT count(*) FROM two.etcd_leader_status;
ALTER EXTENSION etcd_leader SET SCHEMA public;

--
-- Definitions
--

SELECT p.oid::regprocedure AS function,
       pg_get_function_result(p.oid) AS result,
       p.provolatile AS volatile, p.proparallel AS parallel, p.proisstrict AS strict
FROM pg_proc p
JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
WHERE e.extname = 'etcd_leader' AND p.proname NOT IN ('etcd_leader_status', 'etcd_leader_problems', 'etcd_leader_endpoints', 'etcd_leader_stats', 'etcd_leader_losses')
ORDER BY p.proname COLLATE "C";

SELECT p.proname, pg_get_function_arguments(p.oid) AS arguments
FROM pg_proc p
WHERE p.proname LIKE 'etcd\_%' AND p.proname NOT IN ('etcd_leader_status', 'etcd_leader_problems', 'etcd_leader_endpoints', 'etcd_leader_stats', 'etcd_leader_losses')
ORDER BY p.proname COLLATE "C";

SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod) AS type
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
WHERE c.relname IN ('etcd_leader_event', 'etcd_leader_status', 'etcd_leader_problems', 'etcd_leader_endpoints', 'etcd_leader_stats', 'etcd_leader_losses')
ORDER BY c.relname, a.attnum;

-- objects and columns of views without a comment: none
SELECT pg_describe_object(d.classid, d.objid, 0)
FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
WHERE e.extname = 'etcd_leader' AND d.deptype = 'e'
  AND obj_description(d.objid, (SELECT relname FROM pg_class WHERE oid = d.classid)) IS NULL
  -- types that come with a type, a view or a table; they belong to the extension since 17
  AND NOT EXISTS (SELECT FROM pg_type t LEFT JOIN pg_class c ON c.oid = t.typrelid
    WHERE d.classid = 'pg_type'::regclass AND t.oid = d.objid AND (t.typelem <> 0 OR c.relkind IN ('v', 'r')));
SELECT c.relname, a.attname
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
WHERE c.relname IN ('etcd_leader_status', 'etcd_leader_problems', 'etcd_leader_endpoints', 'etcd_leader_stats', 'etcd_leader_losses')
  AND col_description(c.oid, a.attnum) IS NULL;

-- a gated statement does not start where this instance does not lead
CREATE TABLE job (done int);
EXPLAIN (COSTS OFF) INSERT INTO job SELECT 1 WHERE etcd_is_leader();
INSERT INTO job SELECT 1 WHERE etcd_is_leader();
DROP TABLE job;

--
-- Reading
--

SELECT etcd_is_leader(), etcd_is_leader(NULL), etcd_is_leader('alpha'), etcd_is_leader('beta gamma');
SELECT etcd_current_leader(), etcd_current_leader(election => 'beta gamma');
SELECT etcd_fencing_token(), etcd_fencing_token('beta gamma');
SELECT * FROM etcd_leader_events();
SELECT * FROM etcd_leader_events(NULL);
SELECT * FROM etcd_leader_events(after => -1);
SELECT count(*) FROM generate_series(1, 100000) WHERE etcd_is_leader('alpha');

-- the elector takes the elections up in no time
DO $$
BEGIN
  FOR i IN 1 .. 600 LOOP
    EXIT WHEN NOT EXISTS (SELECT FROM etcd_leader_status
                          WHERE state IN ('starting', 'elector_not_running') OR last_error IS NULL);
    PERFORM pg_sleep(0.1);
  END LOOP;
END $$;
SELECT election, node, role, is_leader, leader, fencing_token, leader_since, valid_for,
       lease_id, key, create_revision, state, endpoint, connected, last_contact,
       last_error IS NOT NULL AS has_error, last_error_at <= clock_timestamp() AS has_error_at
FROM etcd_leader_status;
SELECT item, subject, severity, problem LIKE 'no contact with etcd, so this instance cannot become or stay leader: %' AS has_problem,
       hint, since <= clock_timestamp() AS has_since
FROM etcd_leader_problems;
SELECT requests > 0 AS requests, failures > 0 AS failures, timeouts, leases_granted, keepalives,
       elections_won, elections_lost, notifications_sent, notifications_failed,
       latency_max_ms, latency_sum_ms, stats_reset < clock_timestamp() AS stats_reset
FROM etcd_leader_stats;
SELECT * FROM etcd_leader_losses;

-- no such election
SELECT etcd_is_leader('gamma');
SELECT etcd_is_leader('');
SELECT etcd_current_leader('Alpha');
SELECT etcd_fencing_token('gamma');
SELECT etcd_require_leader('gamma');
SELECT etcd_verify_leader('gamma');
SELECT etcd_wait_for_leadership('gamma', '1 s');
SELECT etcd_resign('gamma');
SELECT etcd_campaign('gamma');
SELECT etcd_proclaim('x', 'gamma');
SELECT etcd_transfer('x', 'gamma');
SELECT * FROM etcd_candidates('gamma');

--
-- Waiting
--

SELECT etcd_wait_for_leadership(timeout => '0');
SELECT etcd_wait_for_leadership('beta gamma', '-1 hour');
SELECT etcd_wait_for_leadership(timeout => '20 ms');
SELECT * FROM etcd_wait_for_event(timeout => '20 ms');
SELECT * FROM etcd_wait_for_event(0, '-1 month');
SELECT etcd_wait_for_leadership(timeout => '-300000 years');
SELECT * FROM etcd_wait_for_event(after => 1000, timeout => '0');
CALL etcd_await_leadership(timeout => '0');
CALL etcd_await_leadership(timeout => '20 ms', election => 'beta gamma');
CALL etcd_await_leadership(timeout => '0', leads => true);
CALL etcd_await_leadership('gamma', '0');
DO $$
DECLARE
  l boolean;
BEGIN
  CALL etcd_await_leadership(timeout => '0', leads => l);
  RAISE NOTICE 'leads: %', l;
END $$;
BEGIN;
CALL etcd_await_leadership(timeout => '0');
ROLLBACK;
BEGIN;
CALL etcd_await_event(NULL, '0');
ROLLBACK;
DO $$
DECLARE
  seq bigint;
BEGIN
  CALL etcd_await_event(seq, timeout => '20 ms');
  RAISE NOTICE 'a number that a double holds: %', seq BETWEEN 1 AND 1::bigint << 53;
END $$;
SET statement_timeout = '50 ms';
SELECT etcd_wait_for_leadership();
SELECT etcd_wait_for_leadership(timeout => '290000 years 3 days');
SELECT etcd_wait_for_leadership(timeout => '178956970 years');
SELECT * FROM etcd_wait_for_event(timeout => '300000 years');
CALL etcd_await_event(NULL, '300000 years');
SELECT * FROM etcd_wait_for_event();
CALL etcd_await_leadership();
CALL etcd_await_event(NULL);
RESET statement_timeout;

--
-- Transactions that only the leader can commit; here nobody leads
--

CREATE TABLE ledger (entry text);
SELECT etcd_require_leader();
SELECT etcd_require_leader('beta gamma');
SELECT etcd_verify_leader(timeout => '20 ms') AS verified;

-- what failed has fenced nothing
BEGIN;
SAVEPOINT here;
SELECT etcd_require_leader();
ROLLBACK TO here;
INSERT INTO ledger VALUES ('unguarded');
COMMIT;

-- who writes must lead
SET etcd_leader.require_leadership_of = 'alpha';
SELECT * FROM ledger;
BEGIN; SELECT count(*) FROM ledger; COMMIT;
INSERT INTO ledger VALUES ('no');
UPDATE ledger SET entry = 'no';
COPY ledger FROM stdin;
no
\.
CREATE TABLE no ();
CREATE TEMPORARY TABLE no ();
SELECT * FROM ledger FOR UPDATE;
SELECT lo_create(0) > 0;
DO $$ BEGIN INSERT INTO ledger VALUES ('no'); EXCEPTION WHEN OTHERS THEN RAISE NOTICE 'caught'; END $$;
DO $$ BEGIN INSERT INTO ledger VALUES ('no'); COMMIT; END $$;
BEGIN; INSERT INTO ledger VALUES ('no'); ROLLBACK;
BEGIN; SAVEPOINT here; INSERT INTO ledger VALUES ('no'); ROLLBACK TO here; SELECT 1 AS one; COMMIT;
NOTIFY a_channel;
SET etcd_leader.require_leadership_of = 'gamma';
SELECT * FROM ledger;
INSERT INTO ledger VALUES ('no');
SET etcd_leader.require_leadership_of = E'a\tb';
SELECT repeat('a', 128) AS value \gset
SET etcd_leader.require_leadership_of = :'value';
RESET etcd_leader.require_leadership_of;
INSERT INTO ledger VALUES ('not required');
SELECT * FROM ledger;

-- not for the role itself to decide
CREATE ROLE regress_etcd_leader_writer;
ALTER ROLE regress_etcd_leader_writer SET etcd_leader.require_leadership_of = 'alhpa';
ALTER ROLE regress_etcd_leader_writer SET etcd_leader.require_leadership_of = 'alpha';
SET ROLE regress_etcd_leader_writer;
SET etcd_leader.require_leadership_of = '';
SET etcd_leader.cancel_on_loss = off;
ALTER ROLE regress_etcd_leader_writer SET etcd_leader.require_leadership_of = '';
ALTER ROLE regress_etcd_leader_writer RESET etcd_leader.require_leadership_of;
RESET ROLE;
DROP ROLE regress_etcd_leader_writer;
DROP TABLE ledger;

--
-- Commands
--

SELECT etcd_resign();
\set VERBOSITY sqlstate
SELECT etcd_campaign();
\set VERBOSITY default
SELECT etcd_proclaim('x');
SELECT etcd_proclaim(NULL);
SELECT etcd_proclaim('');
SELECT etcd_proclaim(repeat('x', 256));
SELECT etcd_proclaim(E'a\tb');
SELECT etcd_transfer('x');
SELECT etcd_transfer(NULL);
SELECT etcd_transfer(repeat('x', 256));
\set VERBOSITY sqlstate
SELECT * FROM etcd_candidates();
\set VERBOSITY default
SELECT * FROM etcd_get('flags/');
SELECT * FROM etcd_get(NULL);
SELECT * FROM etcd_get(repeat('x', 65537));

ALTER SYSTEM SET etcd_leader.candidate = 'never';
SELECT pg_reload_conf();
DO $$
BEGIN
  FOR i IN 1 .. 600 LOOP
    EXIT WHEN NOT EXISTS (SELECT FROM etcd_leader_status WHERE state <> 'observing');
    PERFORM pg_sleep(0.1);
  END LOOP;
END $$;
\c
SELECT election, role, state FROM etcd_leader_status;
SELECT etcd_campaign('beta gamma');
ALTER SYSTEM RESET etcd_leader.candidate;
SELECT pg_reload_conf();
DO $$
BEGIN
  FOR i IN 1 .. 600 LOOP
    EXIT WHEN NOT EXISTS (SELECT FROM etcd_leader_status WHERE state = 'observing');
    PERFORM pg_sleep(0.1);
  END LOOP;
END $$;
\c

--
-- Privileges
--

CREATE ROLE regress_etcd_leader_user;
SELECT p.proname, has_function_privilege('regress_etcd_leader_user', p.oid, 'EXECUTE') AS may_call
FROM pg_proc p WHERE p.proname LIKE 'etcd\_%' ORDER BY p.proname COLLATE "C";
SET ROLE regress_etcd_leader_user;
SELECT etcd_is_leader(), etcd_current_leader(), etcd_fencing_token();
SELECT etcd_wait_for_leadership(timeout => '0');
SELECT count(*) FROM etcd_leader_events();
SELECT count(*) FROM etcd_wait_for_event(timeout => '0');
SELECT count(*) FROM etcd_leader_status;
SELECT count(*) FROM etcd_leader_stats;
SELECT count(*) FROM etcd_leader_losses;
SELECT count(*) FROM etcd_leader_problems;
SELECT etcd_resign();
SELECT etcd_campaign();
SELECT etcd_proclaim('x');
SELECT etcd_transfer('x');
SELECT * FROM etcd_candidates();
SELECT * FROM etcd_get('flags/');
SELECT etcd_require_leader();
SELECT etcd_verify_leader();
RESET ROLE;
GRANT EXECUTE ON FUNCTION etcd_proclaim TO regress_etcd_leader_user;
SET ROLE regress_etcd_leader_user;
SELECT etcd_proclaim(NULL);
RESET ROLE;
REVOKE EXECUTE ON FUNCTION etcd_proclaim FROM regress_etcd_leader_user;
DROP ROLE regress_etcd_leader_user;

--
-- Settings
--

SELECT name, boot_val, unit, vartype, context, min_val, max_val, enumvals
FROM pg_settings WHERE name LIKE 'etcd_leader.%' ORDER BY name COLLATE "C";

SET etcd_leader.ttl = 5;
SET etcd_leader.no_such_setting = 1;

-- endpoints
ALTER SYSTEM SET etcd_leader.endpoints = '';
ALTER SYSTEM SET etcd_leader.endpoints = 'http://a:1,';
ALTER SYSTEM SET etcd_leader.endpoints = 'localhost';
ALTER SYSTEM SET etcd_leader.endpoints = 'localhost:2379/etcd';
ALTER SYSTEM SET etcd_leader.endpoints = 'ftp://a:2379';
ALTER SYSTEM SET etcd_leader.endpoints = 'http://';
ALTER SYSTEM SET etcd_leader.endpoints = 'http://:2379';
ALTER SYSTEM SET etcd_leader.endpoints = 'http://a:70000';
ALTER SYSTEM SET etcd_leader.endpoints = 'http://a:b';
ALTER SYSTEM SET etcd_leader.endpoints = 'http://[::1:2379';
ALTER SYSTEM SET etcd_leader.endpoints = '"http://a b:2379"';
ALTER SYSTEM SET etcd_leader.endpoints = 'http://a:2379/?v=3';
ALTER SYSTEM SET etcd_leader.endpoints = 'http://a:2379?x=1';
ALTER SYSTEM SET etcd_leader.endpoints = 'http://a:2379/#x';
ALTER SYSTEM SET etcd_leader.endpoints = 'http://user:secret@a:2379';
ALTER SYSTEM SET etcd_leader.endpoints = 'http://a:2379', 'b';
SELECT 'http://' || repeat('a', 249) AS value \gset
ALTER SYSTEM SET etcd_leader.endpoints = :'value';
SELECT string_agg('http://a:' || i, ',') AS value FROM generate_series(1, 33) i \gset
ALTER SYSTEM SET etcd_leader.endpoints = :'value';
ALTER SYSTEM SET etcd_leader.endpoints = 'http://a:2379', 'https://127.0.0.1/', 'HTTP://[::1]:2379', 'localhost:2379';

-- elections
ALTER SYSTEM SET etcd_leader.elections = 'a,,b';
ALTER SYSTEM SET etcd_leader.elections = 'a, ""';
ALTER SYSTEM SET etcd_leader.elections = 'a', 'b', 'a';
ALTER SYSTEM SET etcd_leader.elections = 'a b';
ALTER SYSTEM SET etcd_leader.elections = 'a', 'b', 'a/c';
ALTER SYSTEM SET etcd_leader.elections = 'a/c', 'a';
ALTER SYSTEM SET etcd_leader.elections = 'a/', 'a';
ALTER SYSTEM SET etcd_leader.elections = E'a\x01b';
SELECT repeat('a', 128) AS value \gset
ALTER SYSTEM SET etcd_leader.elections = :'value';
SELECT string_agg('e' || i, ',') AS value FROM generate_series(1, 33) i \gset
ALTER SYSTEM SET etcd_leader.elections = :'value';
ALTER SYSTEM SET etcd_leader.elections = 'a', '"b c"', 'ab', 'x/y', 'x/yz';

-- watched prefixes
ALTER SYSTEM SET etcd_leader.watched_prefixes = '""';
ALTER SYSTEM SET etcd_leader.watched_prefixes = 'flags/', 'maintenance/', 'flags/a';
ALTER SYSTEM SET etcd_leader.watched_prefixes = 'flags/a', 'flags/';
ALTER SYSTEM SET etcd_leader.watched_prefixes = 'flags/', 'flags/';
ALTER SYSTEM SET etcd_leader.watched_prefixes = 'alpha/';
ALTER SYSTEM SET etcd_leader.watched_prefixes = 'alpha/flags/';
ALTER SYSTEM SET etcd_leader.watched_prefixes = 'al';
ALTER SYSTEM SET etcd_leader.watched_prefixes = 'alpha';
ALTER SYSTEM SET etcd_leader.watched_prefixes = E'a\x01b';
SELECT repeat('a', 256) AS value \gset
ALTER SYSTEM SET etcd_leader.watched_prefixes = :'value';
SELECT string_agg('p' || chr(96 + i), ',') AS value FROM generate_series(1, 17) i \gset
ALTER SYSTEM SET etcd_leader.watched_prefixes = :'value';
ALTER SYSTEM SET etcd_leader.watched_prefixes = 'alphabet/', '/flags/', '"two words/"';

-- out of range: the messages are PostgreSQL's, with units in newer releases only
\set VERBOSITY sqlstate
ALTER SYSTEM SET etcd_leader.ttl = 1;
ALTER SYSTEM SET etcd_leader.ttl = 301;
ALTER SYSTEM SET etcd_leader.ttl = '1 h';
ALTER SYSTEM SET etcd_leader.safety_margin = -2;
ALTER SYSTEM SET etcd_leader.safety_margin = '151 s';
ALTER SYSTEM SET etcd_leader.request_timeout = -2;
\set VERBOSITY default

-- the others
SELECT repeat('a', 256) AS value \gset
ALTER SYSTEM SET etcd_leader.node_name = :'value';
ALTER SYSTEM SET etcd_leader.node_name = E'a\x7fb';
ALTER SYSTEM SET etcd_leader.candidate = 'sometimes';
ALTER SYSTEM SET etcd_leader.preferred_nodes = 'a', 'b', 'a';
ALTER SYSTEM SET etcd_leader.preferred_nodes = 'a', '""';
ALTER SYSTEM SET etcd_leader.preferred_nodes = 'a', E'"b\tc"';
ALTER SYSTEM SET etcd_leader.notify_databases = 'a', 'b', 'a';
ALTER SYSTEM SET etcd_leader.notify_databases = '""';
SELECT repeat('a', 64) AS value \gset
ALTER SYSTEM SET etcd_leader.notify_databases = :'value';
SELECT string_agg('d' || i, ',') AS value FROM generate_series(1, 33) i \gset
ALTER SYSTEM SET etcd_leader.notify_databases = :'value';
ALTER SYSTEM SET etcd_leader.notify_channel = '';
SELECT repeat('a', 64) AS value \gset
ALTER SYSTEM SET etcd_leader.notify_channel = :'value';
SELECT repeat('a', 63) AS value \gset
ALTER SYSTEM SET etcd_leader.notify_channel = :'value';
ALTER SYSTEM SET etcd_leader.request_timeout = 0;
ALTER SYSTEM SET etcd_leader.connect_timeout = 0;

-- what was refused is nowhere, what was accepted is in force after a reload
SELECT name, setting FROM pg_file_settings
WHERE name LIKE 'etcd_leader.%' AND sourcefile LIKE '%auto.conf' ORDER BY name COLLATE "C";
SELECT pg_reload_conf();
\c
SHOW etcd_leader.elections;
SELECT etcd_is_leader('b c');
SELECT etcd_is_leader('alpha');
SELECT election FROM etcd_leader_status;
ALTER SYSTEM RESET ALL;
SELECT pg_reload_conf();
\c
SHOW etcd_leader.elections;

DROP EXTENSION etcd_leader;
DROP SCHEMA one, two;
