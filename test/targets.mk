# The targets of contributors: tests, the demo, figures, the archive.  The Makefile of the
# extension includes this file.
#
# unit and try need no root and install nothing.  The other targets first install missing
# packages from Debian, with root or sudo; test, long, chaos, demo, bench, page and
# prometheus install etcd_leader, too; matrix and container make trees of other suites.

SUDO = $(if $(filter-out 0,$(shell id -u)),sudo)

# These targets install PostgreSQL's headers if they are missing, or do not need them.
WITHOUT_PGXS = unit test long chaos demo bench page prometheus sim fuzz model sanitize matrix container newcomer pictures mutants dist

.PHONY: try $(WITHOUT_PGXS)

# The first answer, in a minute: the tests that need headers, but neither root nor an
# installation, a server or an etcd.
PARALLEL = $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc))

unit:
	@PG_CONFIG="$(PG_CONFIG)" CC="$(CC)" CPPFLAGS="$(CPPFLAGS)" test/unit/prerequisites
	$(MAKE) -s $(PARALLEL) all with_llvm=no WERROR=-Werror
	test/layers
	test/meta
	test/mistakes/plant --check
	$(MAKE) -s $(PARALLEL) -C test/unit quick
	$(MAKE) -s $(PARALLEL) -C test/sim quick

# One test, with a copy of PostgreSQL that has the libraries of this tree.
try:
	$(MAKE) -s $(PARALLEL) all with_llvm=no WERROR=-Werror
	PG_CONFIG="$(PG_CONFIG)" test/try $(TEST)

test:
	test/setup --test
	$(MAKE) -s $(PARALLEL) all WERROR=-Werror
	$(SUDO) $(MAKE) -s install PG_CONFIG=$(PG_CONFIG)
	PG_CONFIG=$(PG_CONFIG) test/run

# The tests that need minutes each.
long:
	test/setup --long
	$(MAKE) -s $(PARALLEL) all WERROR=-Werror
	$(SUDO) $(MAKE) -s install PG_CONFIG=$(PG_CONFIG)
	PG_CONFIG=$(PG_CONFIG) test/run long

# The page for people in a browser, and Prometheus with the files of integrations/:
# their packages are too large for `make test`.
page prometheus:
	test/setup --$@
	$(MAKE) -s $(PARALLEL) all WERROR=-Werror
	$(SUDO) $(MAKE) -s install PG_CONFIG=$(PG_CONFIG)
	PG_CONFIG=$(PG_CONFIG) test/run $@/001_$@.pl

# Faults of all kinds at once on real servers, see test/chaos/README.md.
SEED = 1

chaos: SECONDS = 120
chaos:
	test/setup --test
	test/chaos/check_test
	test/chaos/growth_test
	$(MAKE) -s $(PARALLEL) all WERROR=-Werror
	$(SUDO) $(MAKE) -s install PG_CONFIG=$(PG_CONFIG)
	CHAOS_SECONDS=$(SECONDS) CHAOS_SEED=$(SEED) PG_CONFIG=$(PG_CONFIG) PROVE_FLAGS=-v test/run chaos/chaos.pl

# Seeds of the simulator, seconds of each fuzzer, every variant of the models:
# more than in `make test`.  They need no PostgreSQL server.
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

# What no test notices: the mistakes that unit tests have to find, and mutants of FILES, or
# of the files of test/mutants/survivors that have changed since they were tried.
mutants:
	test/setup --test
	$(MAKE) -s $(PARALLEL) -C test/unit breaks
	test/mutants/mutate $(or $(FILES),--changed)

# The server side under AddressSanitizer, UndefinedBehaviorSanitizer and
# Valgrind, in a copy of the PostgreSQL installation.
sanitize:
	test/setup --sanitize
	PG_CONFIG=$(PG_CONFIG) test/sanitize/run

# The archive for PGXN, from a commit.
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

# The commands of README, typed in fresh trees of Debian, with a compiler and without.
newcomer:
	test/setup --matrix
	$(SUDO) test/matrix newcomer

# Every supported PostgreSQL and etcd; ROWS, QUICK=--quick and FILES select tests.
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

# Measurements against the peers; PARTS and ROUNDS select some, see test/bench/run.
bench:
	test/setup --bench
	$(MAKE) -s all
	$(SUDO) $(MAKE) -s install PG_CONFIG=$(PG_CONFIG)
	PG_CONFIG=$(PG_CONFIG) PARTS="$(PARTS)" ROUNDS="$(ROUNDS)" test/bench/run
