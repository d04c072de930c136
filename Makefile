# etcd_leader: leader election for PostgreSQL through etcd.
#
# make, make install, make installcheck, make clean are PGXS's own.
# make unit and make try need no root and install nothing.
# make demo, make test, make long, make chaos, make bench, make page, make prometheus, make
# sim, make fuzz, make model, make sanitize, make matrix and make container install what is
# missing from Debian first; they need root or sudo for that, the first seven for the
# installation, too, and the last two for trees of other suites.

.DEFAULT_GOAL := all

EXTENSION = etcd_leader
MODULE_big = etcd_leader
DATA = sql/etcd_leader--1.0.sql
OBJS = \
	src/etcd_leader.o \
	src/settings/settings.o \
	src/settings/settings_define.o \
	src/etcd/endpoint_url.o \
	src/protocol/requests.o \
	src/protocol/facts.o \
	src/protocol/lease_state.o \
	src/protocol/patroni_cluster.o \
	src/protocol/drain_state.o \
	src/protocol/transfer_state.o \
	src/protocol/watch_state.o \
	src/protocol/publish.o \
	src/protocol/election.o \
	src/protocol/command.o \
	src/protocol/lease.o \
	src/protocol/own_key.o \
	src/protocol/queue.o \
	src/protocol/queue_events.o \
	src/protocol/reads.o \
	src/protocol/transfer.o \
	src/protocol/drain.o \
	src/protocol/patroni.o \
	src/protocol/changes.o \
	src/protocol/watch.o \
	src/etcd/etcd_encode.o \
	src/etcd/etcd_json.o \
	src/etcd/etcd_proto.o \
	src/etcd/etcd_messages.o \
	src/etcd/etcd_errors.o \
	src/etcd/etcd_text.o \
	src/etcd/etcd_answers.o \
	src/etcd/etcd_auth.o \
	src/etcd/etcd_client.o \
	src/etcd/etcd_clusters.o \
	src/etcd/etcd_endpoints.o \
	src/etcd/etcd_call.o \
	src/etcd/etcd_connections.o \
	src/etcd/etcd_tls.o \
	src/etcd/etcd_grpc.o \
	src/etcd/etcd_h2.o \
	src/etcd/etcd_gateway.o \
	src/etcd/etcd_http.o \
	src/etcd/etcd_easy.o \
	src/etcd/etcd_request.o \
	src/etcd/etcd_watch.o \
	src/etcd/etcd_discovery.o \
	src/etcd/etcd_limits.o \
	src/etcd/etcd_names.o \
	src/etcd/etcd_sockets.o \
	src/etcd/etcd_url.o \
	src/elector/elector.o \
	src/elector/elector_contact.o \
	src/elector/elector_endpoints.o \
	src/elector/elector_events.o \
	src/elector/elector_trace.o \
	src/elector/elector_settings.o \
	src/elector/elector_mailbox.o \
	src/elector/elector_changes.o \
	src/elector/elector_drain.o \
	src/base/certificate.o \
	src/base/clock.o \
	src/base/utf8.o \
	src/shared/shared_state.o \
	src/shared/crash_memory.o \
	src/shared/fenced.o \
	src/shared/events.o \
	src/shared/event_ring.o \
	src/shared/event_file.o \
	src/shared/mailbox.o \
	src/shared/stats.o \
	src/notifier/notifier.o \
	src/notifier/vacate.o \
	src/shared/notifier_register.o \
	src/base/quiet_exit.o \
	src/hooks/hooks.o \
	src/hooks/hooks_file.o \
	src/hooks/hooks_worker.o \
	src/hooks/hook_run.o \
	src/fence/demands.o \
	src/hooks/hook_settings.o \
	src/fence/fence.o \
	src/fence/requirement.o \
	src/shared/status.o \
	src/shared/supervised_worker.o \
	src/session/functions.o \
	src/session/commands.o \
	src/session/wait.o \
	src/session/rows.o \
	src/session/get.o \
	src/session/api.o \
	src/session/read_only.o \
	src/elector/http_launcher.o \
	src/check/check.o \
	src/check/check_etcd.o \
	src/check/check_host.o \
	src/check/check_rows.o
HEADERS_etcd_leader = include/etcd_leader.h

# A library of its own, for the HTTP worker alone.
HTTP_OBJS = \
	http/api.o \
	http/text.o \
	http/worker.o \
	http/listeners.o \
	http/tls.o \
	http/isolation.o \
	http/server.o \
	http/connections.o \
	http/routes.o \
	http/metrics.o \
	http/status_page.o

# Packages for several PostgreSQL are built in a directory for each, with VPATH.
SOURCES := $(or $(VPATH),.)
ifdef VPATH
$(shell mkdir -p http $(addprefix src/,base etcd protocol shared settings elector notifier fence hooks session check))
endif

# The library knows its version, so that a script can ask for it.
ETCD_LEADER_VERSION := $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" $(SOURCES)/etcd_leader.control)

PG_CPPFLAGS = -I$(SOURCES)/include -I$(SOURCES)/src -DETCD_LEADER_VERSION='"$(ETCD_LEADER_VERSION)"'
# The next compiler has warnings that this one has not: only the tests insist.
WERROR ?=
PG_CFLAGS = -Wall -Wextra $(WERROR) -Wno-unused-parameter
SHLIB_LINK = -lcurl -lnghttp2 -lssl -lcrypto -ljansson -lresolv -lpthread -lm

REGRESS = etcd_leader
REGRESS_OPTS = --temp-instance=./tmp_regress --temp-config=./test/regress.conf
HEADER_LISTS = $(foreach object,$(OBJS) $(HTTP_OBJS),$(object).d $(object:.o=.bc).d)
EXTRA_CLEAN = tmp_regress test/*/build $(HEADER_LISTS)

PG_CONFIG ?= pg_config

# Where nothing is installed yet there is no PGXS; the commands that install
# what is missing call make again when there is.
PGXS := $(if $(shell command -v $(PG_CONFIG)),$(wildcard $(shell $(PG_CONFIG) --pgxs)))
ifneq ($(PGXS),)
include $(PGXS)
else ifeq ($(filter test long chaos demo bench page prometheus sim fuzz model sanitize matrix container newcomer pictures dist unit,$(MAKECMDGOALS)),)
$(error "$(PG_CONFIG)" knows no PostgreSQL server to build for: install its headers (Debian: postgresql-server-dev-15) or set PG_CONFIG)
endif

# PGXS's rules, and the compiler lists the headers that it has read.  (What PGXS
# has for this, --enable-depend, knows no bitcode, and no two files of one name.)
%.o: %.c
	$(COMPILE.c) -MMD -MP -MF $@.d -o $@ $<

%.bc: %.c
	$(COMPILE.c.bc) -MMD -MP -MF $@.d -o $@ $<

-include $(wildcard $(HEADER_LISTS))
$(foreach file,etcd_leader session/functions session/rows settings/settings,src/$(file).o src/$(file).bc): etcd_leader.control

# The HTTP library is built where libmicrohttpd is; HTTP=no leaves it out, HTTP=yes
# insists on it.
HTTP ?= $(shell $(CC) $(CPPFLAGS) -include microhttpd.h -E -x c /dev/null >/dev/null 2>&1 && echo yes || echo no)
HTTP_LIBRARY = etcd_leader_http$(DLSUFFIX)

ifeq ($(HTTP),yes)
all: $(HTTP_LIBRARY)
install: install-http
uninstall: uninstall-http
else
all: without-http
endif

$(HTTP_LIBRARY): $(HTTP_OBJS)
	$(CC) $(CFLAGS) -shared -o $@ $^ $(LDFLAGS) $(LDFLAGS_SL) -lmicrohttpd

.PHONY: install-http uninstall-http without-http clean-http
install-http: $(HTTP_LIBRARY) installdirs-lib
	$(INSTALL_SHLIB) $(HTTP_LIBRARY) '$(DESTDIR)$(pkglibdir)/'

uninstall-http:
	rm -f '$(DESTDIR)$(pkglibdir)/$(HTTP_LIBRARY)'

without-http:
	@echo "etcd_leader: built without its HTTP library, for want of libmicrohttpd (Debian: libmicrohttpd-dev)"

clean: clean-http
clean-http:
	rm -f $(HTTP_LIBRARY) $(HTTP_OBJS)

# Documents for users, with the tree's own layout, so that their links lead somewhere:
# not PGXS's DOCS, which puts the files of all extensions in one directory.  A link to
# what is not installed becomes its text.
DOCUMENTS = $(DESTDIR)$(docdir)/etcd_leader
NOT_INSTALLED = doc/internals/\|internals/\|src/\|test/\|container/\|CONTRIBUTING\|LICENSE\|META

.PHONY: install-documents uninstall-documents
install: install-documents
uninstall: uninstall-documents

install-documents:
	$(MKDIR_P) '$(DOCUMENTS)/doc' '$(DOCUMENTS)/integrations'
	$(INSTALL_DATA) $(wildcard $(SOURCES)/doc/*.*) '$(DOCUMENTS)/doc/'
	$(INSTALL_DATA) $(wildcard $(SOURCES)/integrations/*) '$(DOCUMENTS)/integrations/'
	$(INSTALL_DATA) $(foreach page,README SECURITY CHANGELOG,$(SOURCES)/$(page).md) '$(DOCUMENTS)/'
	sed -i 's,!\?\[\([^]]*\)\](\(\.\./\)\?\($(NOT_INSTALLED)\)[^)]*),\1,g' '$(DOCUMENTS)'/*.md '$(DOCUMENTS)'/doc/*.md

uninstall-documents:
	rm -rf '$(DOCUMENTS)'

SUDO = $(if $(filter-out 0,$(shell id -u)),sudo)

.PHONY: unit try test long chaos demo bench page prometheus sim fuzz model sanitize matrix container newcomer pictures dist

# The first answer, in a minute: what needs headers, and neither root nor an
# installation, a server or an etcd.
PARALLEL = $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc))

unit:
	@PG_CONFIG="$(PG_CONFIG)" CC="$(CC)" CPPFLAGS="$(CPPFLAGS)" test/unit/prerequisites
	$(MAKE) -s $(PARALLEL) all with_llvm=no WERROR=-Werror
	test/layers
	test/meta
	$(MAKE) -s $(PARALLEL) -C test/unit quick
	$(MAKE) -s $(PARALLEL) -C test/sim quick

# One test, with a copy of PostgreSQL that has what is built here.
try:
	$(MAKE) -s $(PARALLEL) all with_llvm=no WERROR=-Werror
	PG_CONFIG="$(PG_CONFIG)" test/try $(TEST)

test:
	test/setup --test
	$(MAKE) -s all WERROR=-Werror
	$(SUDO) $(MAKE) -s install PG_CONFIG=$(PG_CONFIG)
	PG_CONFIG=$(PG_CONFIG) test/run

# The tests that need minutes each.
long:
	test/setup --long
	$(MAKE) -s all WERROR=-Werror
	$(SUDO) $(MAKE) -s install PG_CONFIG=$(PG_CONFIG)
	PG_CONFIG=$(PG_CONFIG) test/run long

# The page for people in a browser, and Prometheus with what is in integrations/:
# what they install is too large for `make test`.
page prometheus:
	test/setup --$@
	$(MAKE) -s all WERROR=-Werror
	$(SUDO) $(MAKE) -s install PG_CONFIG=$(PG_CONFIG)
	PG_CONFIG=$(PG_CONFIG) test/run $@/001_$@.pl

# Faults of all kinds at once on real servers, see test/chaos/README.md.
SEED = 1

chaos: SECONDS = 120
chaos:
	test/setup --test
	test/chaos/check_test
	test/chaos/growth_test
	$(MAKE) -s all WERROR=-Werror
	$(SUDO) $(MAKE) -s install PG_CONFIG=$(PG_CONFIG)
	CHAOS_SECONDS=$(SECONDS) CHAOS_SEED=$(SEED) PG_CONFIG=$(PG_CONFIG) PROVE_FLAGS=-v test/run chaos/chaos.pl

# Seeds of the simulator, seconds of each fuzzer, every variant of the models:
# more than what `make test` runs of them.  They need no PostgreSQL server.
SEEDS = 100000
SECONDS = 60

sim:
	test/setup --test
	$(MAKE) -s -C test/sim run SEEDS=$(SEEDS)

fuzz:
	test/setup --fuzz
	$(MAKE) -s -C test/fuzz run SECONDS=$(SECONDS)

model:
	test/setup --test
	$(MAKE) -s -C test/model check

# The server side under AddressSanitizer, UndefinedBehaviorSanitizer and
# Valgrind, in a copy of the PostgreSQL installation.
sanitize:
	test/setup --sanitize
	PG_CONFIG=$(PG_CONFIG) test/sanitize/run

# The archive for PGXN, of what is committed.
COMMIT = HEAD
DIST = $(EXTENSION)-$(shell sed -n '1,/"version"/s/^ *"version": *"\(.*\)",/\1/p' $(SOURCES)/META.json)

dist:
	test/meta
	git -c safe.directory="$(CURDIR)" archive --format=zip --prefix=$(DIST)/ -o $(DIST).zip $(COMMIT)

# The pictures of the documents, the timelines from a run.
pictures:
	test/setup --pictures
	$(MAKE) -s all
	$(SUDO) $(MAKE) -s install PG_CONFIG=$(PG_CONFIG)
	PG_CONFIG=$(PG_CONFIG) test/pictures/run

# What README says, typed in fresh trees of Debian, with a compiler and without.
newcomer:
	test/setup --matrix
	$(SUDO) test/matrix newcomer

# Every supported PostgreSQL and etcd; ROWS, QUICK=--quick and FILES narrow it.
matrix:
	test/setup --matrix
	$(SUDO) env FILES="$(FILES)" test/matrix $(QUICK) $(ROWS)

# The images of container/Dockerfile.
container:
	test/setup --container
	$(SUDO) test/container

# PATRONI=1: with a cluster of Patroni's.
demo:
	PATRONI=$(PATRONI) test/setup --demo
	$(MAKE) -s all
	$(SUDO) $(MAKE) -s install PG_CONFIG=$(PG_CONFIG)
	PG_CONFIG=$(PG_CONFIG) test/demo/$(if $(PATRONI),patroni,demo)

# Against its peers; PARTS and ROUNDS choose how much of it, see test/bench/run.
bench:
	test/setup --bench
	$(MAKE) -s all
	$(SUDO) $(MAKE) -s install PG_CONFIG=$(PG_CONFIG)
	PG_CONFIG=$(PG_CONFIG) PARTS="$(PARTS)" ROUNDS="$(ROUNDS)" test/bench/run
