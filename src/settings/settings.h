/*-------------------------------------------------------------------------
 *
 * settings.h
 *	  Every GUC of etcd_leader.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SETTINGS_H
#define SETTINGS_H

#include "nodes/pg_list.h"

#include "etcd/client.h"
#include "protocol/election.h"

typedef enum CandidateMode
{
	CANDIDATE_PRIMARY,			/* campaign only when not in recovery */
	CANDIDATE_ALWAYS,
	CANDIDATE_NEVER
} CandidateMode;

/* A primary, while another primary of its database system leads. */
typedef enum SecondPrimaryMode
{
	SECOND_PRIMARY_REFUSE,		/* stays out of the election */
	SECOND_PRIMARY_WAIT
} SecondPrimaryMode;

typedef enum SslMinProtocol
{
	SSL_MIN_DEFAULT,			/* TLS 1.2 */
	SSL_MIN_TLS_1_2,
	SSL_MIN_TLS_1_3
} SslMinProtocol;

/* The GUCs, as strings and numbers; lists are checked by their check hooks. */
extern char *settings_endpoints;
extern char *settings_discovery_srv;
extern char *settings_username;
extern char *settings_password_file;
extern char *settings_ssl_ca_file;
extern char *settings_ssl_cert_file;
extern char *settings_ssl_key_file;
extern int	settings_ssl_min_protocol_version;	/* SslMinProtocol */
extern int	settings_protocol;	/* EtcdDialect */
extern uint64 settings_cluster_id;	/* 0: empty */
extern char *settings_elections;
extern char *settings_watched_prefixes;
extern char *settings_node_name;
extern char *settings_patroni_namespace;
extern int	settings_ttl_s;
extern int	settings_safety_margin_ms;
extern char *settings_preferred_nodes;
extern int	settings_preferred_delay_ms;
extern int	settings_drain_timeout_ms;
extern int	settings_candidate;	/* CandidateMode */
extern int	settings_second_primary;	/* SecondPrimaryMode */
extern char *settings_notify_databases;
extern char *settings_notify_channel;
extern int	settings_request_timeout_ms;
extern int	settings_connect_timeout_ms;
extern char *settings_require_leadership_of;
extern bool settings_cancel_on_loss;
extern char *settings_read_only_unless_leader_of;
extern char *settings_http_listen;
extern char *settings_http_ssl_cert_file;
extern char *settings_http_ssl_key_file;
extern char *settings_http_agent_listen;
extern char *settings_hooks_file;
extern int	settings_hooks_max_workers;

/*
 * Was etcd_leader.require_leadership_of set for this session's role, or in the
 * session, and not for everybody?
 */
extern bool settings_requires_by_role;

/*
 * The maximum number of databases with a notifier, since each costs a worker.
 */
#define SETTINGS_MAX_DATABASES	32

/* The maximum number of addresses of each of the two lists. */
#define SETTINGS_MAX_LISTEN		8

/* The maximum of etcd_leader.hooks_max_workers. */
#define SETTINGS_HOOKS_MAX_WORKERS	64

/*
 * Is the password of etcd's user sent to that URL, on another host, without
 * encryption?
 */
extern bool settings_exposes_password(const char *url);

/*
 * Splits the value of a list GUC (elections, databases, endpoints) that has
 * passed its check.  A palloc'd List of char *, in the current context.
 */
extern List *settings_split(const char *value);

/* Is the string in such a List? */
extern bool settings_is_listed(const List *strings, const char *string);

/*
 * The URLs of etcd_leader.endpoints, palloc'd; a host and a port have become
 * one.
 */
extern List *settings_endpoint_urls(void);

/* The value of etcd_leader.elections, split. */
typedef struct ElectionList
{
	int			count;
	struct
	{
		int			len;
		char		name[ELECTION_NAME_SIZE];
	}			elections[ELECTION_MAX_ELECTIONS];
} ElectionList;

/* For the assign hook of etcd_leader.elections, whose memory it is. */
extern void settings_set_elections(const ElectionList *elections);

/*
 * The first election in etcd_leader.elections, and whether a name is in it;
 * both are cached, because each call of etcd_is_leader() needs them.
 * settings_election_index() gives the position in the list, -1 if it is not
 * there; settings_first_election() that of the first, -1 if the list is empty.
 * settings_elections_generation changes with every new value.
 */
extern uint64 settings_elections_generation;
extern int	settings_election_index(const char *name, int len);
extern int	settings_first_election(void);
extern const char *settings_election_name(int index);
extern int	settings_election_count(void);

/*
 * The election of our own that has keys below this prefix, or the prefix below
 * its keys; NULL: none.
 */
extern const char *settings_find_election_within(const char *prefix);

/* Is one of them a followed election? */
extern bool settings_follow_patroni(void);

/* The node name in force: node_name, else cluster_name, else hostname:port. */
extern void settings_resolve_node_name(char *buf, size_t size);

/* A timeout in force, in ms: -1 becomes a ninth of the TTL. */
extern int	settings_resolve_timeout_ms(int timeout_ms, int ttl_ms);

/* The file of the private key, which may be that of the certificate; or empty. */
extern const char *settings_key_file(void);

/*
 * Must endpoints from DNS be those with TLS?  DNS can be forged.  So it must
 * not decide that a password travels unencrypted, nor that TLS is not used
 * although files for it are set.
 */
extern bool settings_require_tls(void);

/* What the client of etcd is configured with, but for endpoints and server name. */
extern void settings_fill_client(EtcdClientSettings *client, int ttl_ms);

/*
 * The safety margin in force, in ms: -1 becomes a tenth of the TTL.  A larger
 * value than half of the TTL is cut to that half (*cut is set).
 */
extern int	settings_resolve_safety_margin_ms(bool *cut);

#endif							/* SETTINGS_H */
