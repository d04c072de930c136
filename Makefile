# etcd_leader: leader election for PostgreSQL through etcd.
#
# make, make install, make installcheck, make clean are PGXS's own.
# Those of contributors, such as make test, are in test/targets.mk.

.DEFAULT_GOAL := all

EXTENSION = etcd_leader
MODULE_big = etcd_leader
DATA = sql/etcd_leader--1.0.sql
HEADERS_etcd_leader = include/etcd_leader.h

# Packages for several PostgreSQL are built in a directory for each, with VPATH.
SOURCES := $(or $(VPATH),.)
sources = $(patsubst $(SOURCES)/%.c,%.o,$(wildcard $(addprefix $(SOURCES)/,$(addsuffix /*.c,$1))))
FOLDERS := $(addprefix src/,base etcd protocol settings shared fence session check hooks notifier elector)
OBJS := $(call sources,src $(FOLDERS))
# A library of its own, for the HTTP worker alone.
HTTP_OBJS := $(call sources,http)
ifdef VPATH
$(shell mkdir -p http $(FOLDERS))
endif

# The library knows its version, so that a script can ask for it.
ETCD_LEADER_VERSION := $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" $(SOURCES)/etcd_leader.control)

PG_CPPFLAGS = -I$(SOURCES)/include -I$(SOURCES)/src -DETCD_LEADER_VERSION='"$(ETCD_LEADER_VERSION)"'
# The next compiler has warnings that this one has not: only the tests insist.
WERROR ?=
PG_CFLAGS = -Wall -Wextra $(WERROR) -Wno-unused-parameter
SHLIB_EXPORTS = src/exports.txt
SHLIB_LINK = -lcurl -lnghttp2 -lssl -lcrypto -ljansson -lresolv -lpthread -lm

REGRESS = etcd_leader
REGRESS_OPTS = --temp-instance=./tmp_regress --temp-config=./test/regress.conf
HEADER_LISTS = $(foreach object,$(OBJS) $(HTTP_OBJS),$(object).d $(object:.o=.bc).d)
EXTRA_CLEAN = tmp_regress test/*/build $(HEADER_LISTS)

PG_CONFIG ?= pg_config

# What contributors call: tests, the demo, figures.
-include $(SOURCES)/test/targets.mk

# Where nothing is installed yet there is no PGXS; the commands that install
# what is missing call make again when there is.
PGXS := $(if $(shell command -v $(PG_CONFIG)),$(wildcard $(shell $(PG_CONFIG) --pgxs)))
ifneq ($(PGXS),)
include $(PGXS)
else ifeq ($(filter $(WITHOUT_PGXS),$(MAKECMDGOALS)),)
$(error "$(PG_CONFIG)" knows no PostgreSQL server to build for: install its headers (Debian: postgresql-server-dev-15) or set PG_CONFIG)
endif

# PGXS's rules, and the compiler lists the headers that it has read.  (What PGXS
# has for this, --enable-depend, knows no bitcode, and no two files of one name.)
%.o: %.c
	$(COMPILE.c) -MMD -MP -MF $@.d -o $@ $<

%.bc: %.c
	$(COMPILE.c.bc) -MMD -MP -MF $@.d -o $@ $<

-include $(wildcard $(HEADER_LISTS))
$(foreach file,etcd_leader session/readers session/rows settings/settings,src/$(file).o src/$(file).bc): etcd_leader.control

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

$(HTTP_LIBRARY): $(HTTP_OBJS) $(exports_file)
	$(CC) $(CFLAGS) -shared -o $@ $(HTTP_OBJS) $(LDFLAGS) $(LDFLAGS_SL) $(exports_file:%=-Wl,--version-script=%) -lmicrohttpd

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
NOT_INSTALLED = doc/internals/\|internals/\|src/\|test/\|container/\|CONTRIBUTING\|LICENSE\|NOTICE\|META

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
