/* sql/etcd_leader--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION etcd_leader" to load this file. \quit

-- Others may create in the schema of the extension before the script runs, or
-- own it.  An operator or a function there that fits the types better than the
-- one of pg_catalog would be found first.  So this script, and the scripts of
-- updates, use no operator and no function but the extension's own, with exactly
-- their types, and have no body of a function in SQL.

-- The loaded library may be older than this script.  Raise an error in that
-- case.  Every script begins with this, also those of updates.
CREATE FUNCTION etcd_leader_check_version(version text)
RETURNS void
AS 'MODULE_PATHNAME', 'etcd_leader_check_version'
LANGUAGE C STRICT;

SELECT etcd_leader_check_version('1.0'::text);

DROP FUNCTION etcd_leader_check_version(text);

--
-- Who leads: reads shared memory only
--

CREATE FUNCTION etcd_is_leader(election text DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'etcd_is_leader'
LANGUAGE C STABLE PARALLEL RESTRICTED;

COMMENT ON FUNCTION etcd_is_leader(text) IS
'Returns whether this instance leads. election: a name in etcd_leader.elections; NULL means the first one. True only while it provably leads; false in case of doubt. Never waits. ERROR 42704: no such election; 55000: the library was not preloaded.';

CREATE FUNCTION etcd_current_leader(election text DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'etcd_current_leader'
LANGUAGE C STABLE PARALLEL SAFE;

COMMENT ON FUNCTION etcd_current_leader(text) IS
'Returns the node name of the leader; NULL if there is none, or if the last confirmed answer of etcd is older than one TTL. election: a name in etcd_leader.elections; NULL means the first one. Never waits. ERROR 42704: no such election; 55000: the library was not preloaded.';

CREATE FUNCTION etcd_fencing_token(election text DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'etcd_fencing_token'
LANGUAGE C STABLE PARALLEL RESTRICTED;

COMMENT ON FUNCTION etcd_fencing_token(text) IS
'Returns the fencing token while this instance leads, else NULL. The token is the create revision of the leader''s key; it increases from leader to leader. election: a name in etcd_leader.elections; NULL means the first one. Never waits. ERROR 42704: no such election; 55000: the library was not preloaded.';

--
-- Transactions that only the leader can commit
--

CREATE FUNCTION etcd_require_leader(election text DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'etcd_require_leader'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION etcd_require_leader(text) IS
'Returns the fencing token, and lets the transaction commit only if this instance still leads under that token. election: a name in etcd_leader.elections; NULL means the first one. Never waits. ERROR 25006: this instance does not lead, here or at COMMIT; 25000: in a parallel worker; 54000: too many elections are required; 0A000: at PREPARE TRANSACTION; 42704: no such election; 55000: the library was not preloaded.';

CREATE FUNCTION etcd_verify_leader(election text DEFAULT NULL, timeout interval DEFAULT '5 s')
RETURNS bigint
AS 'MODULE_PATHNAME', 'etcd_verify_leader'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION etcd_verify_leader(text, interval) IS
'Does the same as etcd_require_leader(), but first asks etcd by a linearizable read. election: a name in etcd_leader.elections; NULL means the first one. timeout: how long to wait for etcd; NULL means without limit. ERROR 25006: this instance does not lead, or etcd did not answer in time; 57014: cancelled; 42704: no such election; 55000: the library was not preloaded.';

--
-- Events
--

CREATE TYPE etcd_leader_event AS (
	seq bigint,
	at timestamp with time zone,
	election text,
	event text,
	node text,
	leader text,
	fencing_token bigint,
	reason text,
	key text,
	value text,
	revision bigint
);

COMMENT ON TYPE etcd_leader_event IS
'An event. event: elected, unelected, draining, drain_cancelled or leader for an election; connected or disconnected for the contact with etcd; change for a key below etcd_leader.watched_prefixes. seq: increases by 1; a restart after a crash skips a number; each start of the server begins above all earlier numbers, at the microseconds since 2000; election: NULL if the event is not of an election; node: this instance; leader: who leads now, NULL if nobody is known to lead; fencing_token: create revision of the leader''s key; reason: why, or NULL. Only for change: key; value: NULL if the key was deleted; revision: etcd''s mod revision. A key or value is cut at 1,000 bytes (reason truncated), and in hex if it is not text (reason binary). Both are NULL for roles that may not call etcd_get(). Reason gap, key NULL: changes may be missing here, so read the keys again.';

CREATE FUNCTION etcd_leader_events(after bigint DEFAULT 0)
RETURNS SETOF etcd_leader_event
AS 'MODULE_PATHNAME', 'etcd_leader_events'
LANGUAGE C STABLE PARALLEL SAFE;

COMMENT ON FUNCTION etcd_leader_events(bigint) IS
'Returns the recent events with seq > after, oldest first. At least the last 256 are kept. after: 0, NULL or a number above the newest seq means all. The first seq is after + 1 if none is missing. Never waits. ERROR 55000: the library was not preloaded.';

CREATE FUNCTION etcd_wait_for_event(after bigint DEFAULT NULL, timeout interval DEFAULT NULL)
RETURNS SETOF etcd_leader_event
AS 'MODULE_PATHNAME', 'etcd_wait_for_event'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION etcd_wait_for_event(bigint, interval) IS
'Waits until there are events with seq > after and returns them; no rows after the timeout. after: NULL means from now on, a number above the newest seq means all. The first seq is after + 1 if none is missing. timeout: NULL means none. Works on a standby. ERROR 57014: cancelled; 55000: the library was not preloaded.';

CREATE FUNCTION etcd_wait_for_leadership(election text DEFAULT NULL, timeout interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'etcd_wait_for_leadership'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION etcd_wait_for_leadership(text, interval) IS
'Waits until this instance leads. Returns true then, and false after the timeout. timeout: NULL means none, 0 or less does not wait. election: a name in etcd_leader.elections; NULL means the first one. Works on a standby. ERROR 57014: cancelled; 42704: no such election; 55000: the library was not preloaded.';

CREATE PROCEDURE etcd_await_leadership(election text DEFAULT NULL, timeout interval DEFAULT NULL, INOUT leads boolean DEFAULT NULL)
AS 'MODULE_PATHNAME', 'etcd_await_leadership'
LANGUAGE C;

COMMENT ON PROCEDURE etcd_await_leadership(text, interval, boolean) IS
'Waits until this instance leads. leads becomes true then, and false after the timeout; the value passed for it is ignored, and PL/pgSQL needs a variable there: leads => variable. Holds no snapshot while it waits, so it does not hold back VACUUM or recovery. timeout: NULL means none, 0 or less does not wait. election: a name in etcd_leader.elections; NULL means the first one. ERROR 25001: in a transaction block, in a function, or in a transaction that has written or keeps a snapshot; 57014: cancelled; 42704: no such election; 55000: the library was not preloaded.';

CREATE PROCEDURE etcd_await_event(INOUT newest bigint, timeout interval DEFAULT NULL)
AS 'MODULE_PATHNAME', 'etcd_await_event'
LANGUAGE C;

COMMENT ON PROCEDURE etcd_await_event(bigint, interval) IS
'Waits until there are events with seq > newest (NULL means from now on), and sets newest to the highest seq, also after the timeout. Then read etcd_leader_events(after). Holds no snapshot while it waits, so it does not hold back VACUUM or recovery. A number above the highest seq means any event. timeout: NULL means none. ERROR 25001: in a transaction block, in a function, or in a transaction that has written or keeps a snapshot; 57014: cancelled; 55000: the library was not preloaded.';

--
-- Commands: wait for etcd
--

CREATE FUNCTION etcd_resign(election text DEFAULT NULL, rejoin boolean DEFAULT true, drain interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'etcd_resign'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION etcd_resign(text, boolean, interval) IS
'Gives up leadership, or the place in the queue. Returns true when the key is deleted, false if this instance was not a candidate, or if the drain was cancelled. If there is no other candidate, a NOTICE says so. election: a name in etcd_leader.elections; NULL means the first one. rejoin: true (or NULL) enters the queue again at its end; false stays out until etcd_campaign() or a restart of the server. drain: for so long at most a leader waits for the transactions that require leadership, and accepts no new ones; NULL means etcd_leader.drain_timeout. If the call is cancelled meanwhile, this instance leads on. ERROR 08006: etcd did not answer, but leadership has ended here; 22023: drain is negative; 25001: drain, and this transaction requires leadership itself; 42704: no such election; 55000: drain and rejoin, and there is no other candidate, or there is no elector, or it does not handle the election yet.';

CREATE FUNCTION etcd_campaign(election text DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'etcd_campaign'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION etcd_campaign(text) IS
'Enters the election, for example after etcd_resign(rejoin => false). Returns true when the key is in the queue, false if this instance was in the queue already. election: a name in etcd_leader.elections; NULL means the first one. ERROR 55000: etcd_leader.candidate forbids it, another primary of this database system leads or has led, there is no elector, or it does not handle the election yet; 08006: etcd did not answer; 42704: no such election.';

CREATE FUNCTION etcd_proclaim(value text, election text DEFAULT NULL)
RETURNS void
AS 'MODULE_PATHNAME', 'etcd_proclaim'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION etcd_proclaim(text, text) IS
'Changes the value of this instance''s key, which others see as the leader''s name, without an election. value: 1 to 255 bytes of UTF-8 without control characters. election: a name in etcd_leader.elections; NULL means the first one. ERROR 22004: value is NULL; 22023: value is not allowed; 08006: etcd did not answer; 42704: no such election; 55000: not a candidate, there is no elector, or it does not handle the election yet.';

CREATE FUNCTION etcd_transfer(to_node text, election text DEFAULT NULL, timeout interval DEFAULT '10 s', drain interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'etcd_transfer'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION etcd_transfer(text, text, interval, interval) IS
'Hands leadership over to a candidate, at any place in the queue. This instance and the candidates before the new leader enter the queue again at its end. Call it on the leader. Returns true when to_node leads, and false if another candidate leads, or if to_node is not seen to lead within the timeout. to_node: as etcd_candidates() shows it. election: a name in etcd_leader.elections; NULL means the first one. timeout: NULL means none; the time of the drain does not count. drain: as of etcd_resign(). If to_node is gone after it, this instance leads on. ERROR 42704: no such election, or no such candidate; 22023: drain is negative; 25001: drain, and this transaction requires leadership itself; 55000: this instance does not lead, two candidates have that name, a candidate of another program is before it, there is no elector, or it does not handle the election yet; 54000: more than 120 candidates are before it; 22004: to_node is NULL; 08006: etcd did not answer, leadership may have ended here.';

CREATE FUNCTION etcd_candidates(election text DEFAULT NULL)
RETURNS TABLE (
	"position" integer,
	node text,
	is_leader boolean,
	is_self boolean,
	key text,
	lease_id text,
	create_revision bigint
)
AS 'MODULE_PATHNAME', 'etcd_candidates'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION etcd_candidates(text) IS
'Reads the queue from etcd and returns it, the leader first. election: a name in etcd_leader.elections; NULL means the first one. position: from 1; node: the value of the key; is_self: the key is this instance''s; lease_id: in hex, NULL if the key has no lease. ERROR 08006: etcd did not answer; 42704: no such election; 55000: there is no elector, or it does not handle the election yet.';

CREATE TYPE etcd_leader_key_value AS (
	key text,
	value text,
	create_revision bigint,
	mod_revision bigint
);

COMMENT ON TYPE etcd_leader_key_value IS
'A key of etcd and its value. Each is in hex if it is not text (UTF-8 without control characters other than tab and line ends).';

CREATE FUNCTION etcd_get(key text, prefix boolean DEFAULT false)
RETURNS SETOF etcd_leader_key_value
AS 'MODULE_PATHNAME', 'etcd_get'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION etcd_get(text, boolean) IS
'Reads a key of etcd by a linearizable read and returns it; no row if it does not exist. prefix: true returns all keys that begin with key, in the order of their names, as of one revision. Reads only below etcd_leader.watched_prefixes, for superusers, too. ERROR 42501: key is not below a watched prefix; 22004: key is NULL; 22023: key is longer than 65,536 bytes; 54000: a key with its value is larger than 2 MB; 08006: etcd did not answer, refused, or has compacted the revision meanwhile; 55000: there is no elector, or the library was not preloaded.';

--
-- Views
--

CREATE FUNCTION etcd_leader_status(
	OUT election text,
	OUT node text,
	OUT role text,
	OUT is_leader boolean,
	OUT leader text,
	OUT fencing_token bigint,
	OUT leader_since timestamp with time zone,
	OUT valid_for interval,
	OUT lease_id text,
	OUT key text,
	OUT create_revision bigint,
	OUT state text,
	OUT ttl interval,
	OUT endpoint text,
	OUT protocol text,
	OUT cluster_id text,
	OUT connected boolean,
	OUT last_contact timestamp with time zone,
	OUT last_error text,
	OUT last_error_at timestamp with time zone,
	OUT won bigint,
	OUT lost bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'etcd_leader_status'
LANGUAGE C STABLE PARALLEL SAFE ROWS 16;

COMMENT ON FUNCTION etcd_leader_status() IS
'Returns the rows of the view etcd_leader_status. ERROR 55000: the library was not preloaded.';

CREATE VIEW etcd_leader_status AS
	SELECT * FROM etcd_leader_status();

GRANT SELECT ON etcd_leader_status TO PUBLIC;

COMMENT ON VIEW etcd_leader_status IS
'The state of each election in etcd_leader.elections and of the contact with etcd, as this instance knows it. Read from shared memory only.';
COMMENT ON COLUMN etcd_leader_status.election IS 'name of the election';
COMMENT ON COLUMN etcd_leader_status.node IS 'name under which this instance is a candidate';
COMMENT ON COLUMN etcd_leader_status.role IS 'leader, candidate or observer';
COMMENT ON COLUMN etcd_leader_status.is_leader IS 'result of etcd_is_leader()';
COMMENT ON COLUMN etcd_leader_status.leader IS 'result of etcd_current_leader()';
COMMENT ON COLUMN etcd_leader_status.fencing_token IS 'create revision of the leader''s key';
COMMENT ON COLUMN etcd_leader_status.leader_since IS 'when this instance first saw this leader';
COMMENT ON COLUMN etcd_leader_status.valid_for IS 'how long this instance still leads if etcd does not answer any more; NULL if it does not lead';
COMMENT ON COLUMN etcd_leader_status.lease_id IS 'lease of this instance''s key, in hex';
COMMENT ON COLUMN etcd_leader_status.key IS 'this instance''s key in etcd; NULL if no key is known to exist';
COMMENT ON COLUMN etcd_leader_status.create_revision IS 'create revision of this instance''s key: its place in the queue';
COMMENT ON COLUMN etcd_leader_status.state IS 'state of this instance in the election; "starting" if the elector does not handle it yet, "elector_not_running" if there is no elector';
COMMENT ON COLUMN etcd_leader_status.ttl IS 'TTL in force: of the lease in use, or of "etcd_leader.ttl" if that is less';
COMMENT ON COLUMN etcd_leader_status.endpoint IS 'endpoint of etcd in use';
COMMENT ON COLUMN etcd_leader_status.protocol IS 'grpc or json: the wire protocol of the requests, as etcd_leader.protocol chooses it; NULL before the elector has read its settings';
COMMENT ON COLUMN etcd_leader_status.cluster_id IS 'ID of the etcd cluster, in hex; NULL if none was entered yet';
COMMENT ON COLUMN etcd_leader_status.connected IS 'whether etcd has answered since the last time that all endpoints failed';
COMMENT ON COLUMN etcd_leader_status.last_contact IS 'when etcd answered last';
COMMENT ON COLUMN etcd_leader_status.last_error IS 'the first problem of the election in etcd_leader_problems, or else of the instance; NULL if there is none';
COMMENT ON COLUMN etcd_leader_status.last_error_at IS 'since when this problem exists; NULL if there is none';
COMMENT ON COLUMN etcd_leader_status.won IS 'how often this instance became the leader since etcd_leader_stats.stats_reset';
COMMENT ON COLUMN etcd_leader_status.lost IS 'how often its leadership ended since then';

CREATE FUNCTION etcd_leader_problems(
	OUT item text,
	OUT subject text,
	OUT severity text,
	OUT problem text,
	OUT hint text,
	OUT since timestamp with time zone)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'etcd_leader_problems'
LANGUAGE C STABLE PARALLEL SAFE ROWS 5;

COMMENT ON FUNCTION etcd_leader_problems() IS
'Returns the rows of the view etcd_leader_problems. ERROR 55000: the library was not preloaded.';

CREATE VIEW etcd_leader_problems AS
	SELECT * FROM etcd_leader_problems();

GRANT SELECT ON etcd_leader_problems TO PUBLIC;

COMMENT ON VIEW etcd_leader_problems IS
'What is wrong with the set-up of this instance now, errors first; no row if nothing is known to be wrong. A row stays until a try has shown that the problem is over. Read from shared memory only. etcd_leader_check() tries everything anew.';
COMMENT ON COLUMN etcd_leader_problems.item IS 'what the problem is about; the reference lists all items';
COMMENT ON COLUMN etcd_leader_problems.subject IS 'of which endpoint, election, file, setting and so on; NULL: of the instance';
COMMENT ON COLUMN etcd_leader_problems.severity IS 'error: this instance does not lead because of it, or will not, or a part of the set-up does not work; warning: all works, but not for long, or probably not as intended';
COMMENT ON COLUMN etcd_leader_problems.problem IS 'what is wrong';
COMMENT ON COLUMN etcd_leader_problems.hint IS 'what to do; NULL if nothing general can be said';
COMMENT ON COLUMN etcd_leader_problems.since IS 'when it began; NULL if that is not known';

CREATE FUNCTION etcd_leader_endpoints(
	OUT url text,
	OUT in_use boolean,
	OUT version text,
	OUT cluster_id text,
	OUT member_name text,
	OUT last_contact timestamp with time zone,
	OUT latency_ms double precision,
	OUT last_error text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'etcd_leader_endpoints'
LANGUAGE C STABLE PARALLEL SAFE ROWS 5;

COMMENT ON FUNCTION etcd_leader_endpoints() IS
'Returns the rows of the view etcd_leader_endpoints. ERROR 55000: the library was not preloaded.';

CREATE VIEW etcd_leader_endpoints AS
	SELECT * FROM etcd_leader_endpoints();

GRANT SELECT ON etcd_leader_endpoints TO PUBLIC;

COMMENT ON VIEW etcd_leader_endpoints IS
'The endpoints of etcd that the elector knows, from the settings, from DNS and from the cluster, in the order in which they are tried. Read from shared memory only.';
COMMENT ON COLUMN etcd_leader_endpoints.url IS 'URL of the endpoint';
COMMENT ON COLUMN etcd_leader_endpoints.in_use IS 'whether the elector sends its requests there';
COMMENT ON COLUMN etcd_leader_endpoints.version IS 'version of etcd there; NULL if it is not known, as etcd may refuse to tell it to its user';
COMMENT ON COLUMN etcd_leader_endpoints.cluster_id IS 'ID of the etcd cluster to which it belongs, in hex; NULL if it has not told';
COMMENT ON COLUMN etcd_leader_endpoints.member_name IS 'name of the member of the cluster that answered there; NULL if it is not known';
COMMENT ON COLUMN etcd_leader_endpoints.last_contact IS 'when it answered last; NULL if it never did';
COMMENT ON COLUMN etcd_leader_endpoints.latency_ms IS 'how long that answer took, in ms';
COMMENT ON COLUMN etcd_leader_endpoints.last_error IS 'the last failure there; NULL if a later try has succeeded';

CREATE FUNCTION etcd_leader_stats(
	OUT requests bigint,
	OUT failures bigint,
	OUT timeouts bigint,
	OUT endpoint_switches bigint,
	OUT leases_granted bigint,
	OUT keepalives bigint,
	OUT watch_restarts bigint,
	OUT elections_won bigint,
	OUT elections_lost bigint,
	OUT notifications_sent bigint,
	OUT notifications_failed bigint,
	OUT latency_max_ms double precision,
	OUT latency_sum_ms double precision,
	OUT latency_count bigint,
	OUT commits_refused bigint,
	OUT statements_cancelled bigint,
	OUT drains bigint,
	OUT transactions_refused bigint,
	OUT notifiers_expected integer,
	OUT notifiers_running integer,
	OUT version text,
	OUT stats_reset timestamp with time zone)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'etcd_leader_stats'
LANGUAGE C STABLE PARALLEL SAFE ROWS 1;

COMMENT ON FUNCTION etcd_leader_stats() IS
'Returns the row of the view etcd_leader_stats. ERROR 55000: the library was not preloaded.';

CREATE VIEW etcd_leader_stats AS
	SELECT * FROM etcd_leader_stats();

GRANT SELECT ON etcd_leader_stats TO PUBLIC;

COMMENT ON VIEW etcd_leader_stats IS
'Counters of this instance since stats_reset: the start of the server, or the last etcd_leader_stats_reset(). A restart after a crash does not reset the counters.';
COMMENT ON COLUMN etcd_leader_stats.requests IS 'requests to etcd, without watches';
COMMENT ON COLUMN etcd_leader_stats.failures IS 'requests that etcd did not answer, or answered with an error';
COMMENT ON COLUMN etcd_leader_stats.timeouts IS 'failures by timeout';
COMMENT ON COLUMN etcd_leader_stats.endpoint_switches IS 'changes to another endpoint';
COMMENT ON COLUMN etcd_leader_stats.leases_granted IS 'leases granted';
COMMENT ON COLUMN etcd_leader_stats.keepalives IS 'keepalives sent';
COMMENT ON COLUMN etcd_leader_stats.watch_restarts IS 'watch streams opened';
COMMENT ON COLUMN etcd_leader_stats.elections_won IS 'how often this instance became the leader';
COMMENT ON COLUMN etcd_leader_stats.elections_lost IS 'how often its leadership ended; etcd_leader_losses has the reasons';
COMMENT ON COLUMN etcd_leader_stats.notifications_sent IS 'notifications that were sent, in all databases; one can tell of many changes';
COMMENT ON COLUMN etcd_leader_stats.notifications_failed IS 'failed attempts to announce events';
COMMENT ON COLUMN etcd_leader_stats.latency_max_ms IS 'longest time of an answered request, in ms';
COMMENT ON COLUMN etcd_leader_stats.latency_sum_ms IS 'sum of the times of all answered requests, in ms';
COMMENT ON COLUMN etcd_leader_stats.latency_count IS 'number of answered requests';
COMMENT ON COLUMN etcd_leader_stats.commits_refused IS 'commits that were refused because this instance did not lead';
COMMENT ON COLUMN etcd_leader_stats.statements_cancelled IS 'running statements that were cancelled after a loss of leadership';
COMMENT ON COLUMN etcd_leader_stats.drains IS 'planned hand-overs that waited for transactions';
COMMENT ON COLUMN etcd_leader_stats.transactions_refused IS 'calls that required leadership while the instance drained';
COMMENT ON COLUMN etcd_leader_stats.notifiers_expected IS 'number of notifiers that should run now: one for each database of etcd_leader.notify_databases; 0 on a standby';
COMMENT ON COLUMN etcd_leader_stats.notifiers_running IS 'number of notifiers that run now';
COMMENT ON COLUMN etcd_leader_stats.version IS 'version of the library that the server has loaded';
COMMENT ON COLUMN etcd_leader_stats.stats_reset IS 'when the counters began at 0';

CREATE FUNCTION etcd_leader_losses(
	OUT reason text,
	OUT losses bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'etcd_leader_losses'
LANGUAGE C STABLE PARALLEL SAFE ROWS 10;

COMMENT ON FUNCTION etcd_leader_losses() IS
'Returns the rows of the view etcd_leader_losses. ERROR 55000: the library was not preloaded.';

CREATE VIEW etcd_leader_losses AS
	SELECT * FROM etcd_leader_losses();

GRANT SELECT ON etcd_leader_losses TO PUBLIC;

COMMENT ON VIEW etcd_leader_losses IS
'How often the leadership of this instance ended for each reason of the event unelected, since etcd_leader_stats.stats_reset.';
COMMENT ON COLUMN etcd_leader_losses.reason IS 'reason of the event unelected';
COMMENT ON COLUMN etcd_leader_losses.losses IS 'how often leadership ended for this reason';

CREATE FUNCTION etcd_leader_stats_reset()
RETURNS void
AS 'MODULE_PATHNAME', 'etcd_leader_stats_reset'
LANGUAGE C VOLATILE PARALLEL SAFE;

COMMENT ON FUNCTION etcd_leader_stats_reset() IS
'Sets the counters of etcd_leader_stats and etcd_leader_losses, and won and lost of etcd_leader_status, to 0, and stats_reset to now. ERROR 55000: the library was not preloaded.';

--
-- Hooks: lines of etcd_leader.hooks_file
--

CREATE FUNCTION etcd_leader_hooks(
	OUT line integer,
	OUT event text,
	OUT election text,
	OUT database text,
	OUT role text,
	OUT timeout interval,
	OUT command text,
	OUT is_off boolean,
	OUT fencing_token bigint,
	OUT started_at timestamp with time zone,
	OUT ended_at timestamp with time zone,
	OUT status text,
	OUT sqlstate text,
	OUT message text,
	OUT runs bigint,
	OUT failures bigint,
	OUT crashes integer)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'etcd_leader_hooks'
LANGUAGE C STABLE PARALLEL SAFE ROWS 32;

COMMENT ON FUNCTION etcd_leader_hooks() IS
'Returns the rows of the view etcd_leader_hooks. ERROR 55000: the library was not preloaded.';

CREATE VIEW etcd_leader_hooks AS
	SELECT * FROM etcd_leader_hooks();

COMMENT ON VIEW etcd_leader_hooks IS
'The hooks in force, one row for each line of etcd_leader.hooks_file, and the last run of each. Not for PUBLIC.';
COMMENT ON COLUMN etcd_leader_hooks.line IS 'number of the line in the file';
COMMENT ON COLUMN etcd_leader_hooks.event IS 'when it runs: elected, unelected or change';
COMMENT ON COLUMN etcd_leader_hooks.election IS 'name of the election; all; or for change the prefix of the keys';
COMMENT ON COLUMN etcd_leader_hooks.database IS 'database in which it runs';
COMMENT ON COLUMN etcd_leader_hooks.role IS 'role that runs it';
COMMENT ON COLUMN etcd_leader_hooks.timeout IS 'how long a run may take';
COMMENT ON COLUMN etcd_leader_hooks.command IS 'SQL: one statement or several';
COMMENT ON COLUMN etcd_leader_hooks.is_off IS 'whether it does not run any more, because the server has crashed three times while it ran';
COMMENT ON COLUMN etcd_leader_hooks.fencing_token IS 'of the last run: the token that was won, or lost; NULL for change, and for unelected at the start of the server';
COMMENT ON COLUMN etcd_leader_hooks.started_at IS 'when the last run was started; NULL: there was none since the server started';
COMMENT ON COLUMN etcd_leader_hooks.ended_at IS 'when the last run ended; NULL while it runs';
COMMENT ON COLUMN etcd_leader_hooks.status IS 'of the last run: waiting for a background worker, running, succeeded, failed, cancelled by etcd_leader, or crashed: the server crashed while it ran';
COMMENT ON COLUMN etcd_leader_hooks.sqlstate IS 'SQLSTATE of the error of the last run';
COMMENT ON COLUMN etcd_leader_hooks.message IS 'why the last run waits, failed or was cancelled';
COMMENT ON COLUMN etcd_leader_hooks.runs IS 'number of runs since the server started';
COMMENT ON COLUMN etcd_leader_hooks.failures IS 'how many of them failed, or crashed the server';
COMMENT ON COLUMN etcd_leader_hooks.crashes IS 'how often the server has crashed while it ran, since its last success';

CREATE FUNCTION etcd_leader_hooks_file(
	OUT path text,
	OUT read_at timestamp with time zone,
	OUT hooks integer,
	OUT hash text,
	OUT error text,
	OUT error_at timestamp with time zone)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'etcd_leader_hooks_file'
LANGUAGE C STABLE PARALLEL SAFE ROWS 1;

COMMENT ON FUNCTION etcd_leader_hooks_file() IS
'Returns the row of the view etcd_leader_hooks_file. ERROR 55000: the library was not preloaded.';

CREATE VIEW etcd_leader_hooks_file AS
	SELECT * FROM etcd_leader_hooks_file();

COMMENT ON VIEW etcd_leader_hooks_file IS
'The file whose hooks are in force, and what is wrong with it now. Not for PUBLIC.';
COMMENT ON COLUMN etcd_leader_hooks_file.path IS 'the file whose hooks are in force; NULL: none';
COMMENT ON COLUMN etcd_leader_hooks_file.read_at IS 'when it was read';
COMMENT ON COLUMN etcd_leader_hooks_file.hooks IS 'number of hooks';
COMMENT ON COLUMN etcd_leader_hooks_file.hash IS 'the same on all instances that have the same hooks; order, comments and timeouts do not count';
COMMENT ON COLUMN etcd_leader_hooks_file.error IS 'why the last reload has kept the hooks that were there before; NULL: it has not';
COMMENT ON COLUMN etcd_leader_hooks_file.error_at IS 'when that was';

--
-- The set-up: the elector tries everything anew
--

CREATE FUNCTION etcd_leader_check(timeout interval DEFAULT '5 s')
RETURNS TABLE (item text, subject text, severity text, problem text, hint text, since timestamp with time zone)
AS 'MODULE_PATHNAME', 'etcd_leader_check'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION etcd_leader_check(interval) IS
'Has the elector try everything anew, waits for that, and returns the rows of etcd_leader_problems, and those that only a session can find; no row if nothing is wrong. timeout: for so long at most; NULL means without limit. ERROR 57014: cancelled; 55000: the library was not preloaded.';

--
-- PUBLIC may call the functions that only read
--

REVOKE ALL ON FUNCTION etcd_resign(text, boolean, interval) FROM PUBLIC;
REVOKE ALL ON FUNCTION etcd_campaign(text) FROM PUBLIC;
REVOKE ALL ON FUNCTION etcd_proclaim(text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION etcd_candidates(text) FROM PUBLIC;
REVOKE ALL ON FUNCTION etcd_transfer(text, text, interval, interval) FROM PUBLIC;
REVOKE ALL ON FUNCTION etcd_verify_leader(text, interval) FROM PUBLIC;
REVOKE ALL ON FUNCTION etcd_get(text, boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION etcd_leader_stats_reset() FROM PUBLIC;
REVOKE ALL ON FUNCTION etcd_leader_hooks() FROM PUBLIC;
REVOKE ALL ON FUNCTION etcd_leader_hooks_file() FROM PUBLIC;
REVOKE ALL ON FUNCTION etcd_leader_check(interval) FROM PUBLIC;

--
-- Who watches the server may ask
--

GRANT EXECUTE ON FUNCTION etcd_candidates(text) TO pg_monitor;
GRANT EXECUTE ON FUNCTION etcd_leader_hooks_file() TO pg_monitor;
GRANT SELECT ON etcd_leader_hooks_file TO pg_monitor;
GRANT EXECUTE ON FUNCTION etcd_leader_check(interval) TO pg_monitor;
