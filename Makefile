# Every target prepares what it needs: nothing has to be installed by hand.
#   make demo    the story in under a minute
#   make test    check, then the tests (what CI runs)
#   make test-long    whole runs of roadmaps, on SQLite and PostgreSQL, stopped and killed; the environments people have,
#                     by their own tools (some minutes, and some 700 MB below .environment-tools; CI runs it too)
#   make test-agents  real agent programs against a scripted model (installs some 3.3 GB below .agent-programs; CI runs
#                     it with MISSING=tell: what a machine cannot install is told loudly, and everything else counts)
#   make check   style, format, types
#   make crash   every kill point and every power cut, on five file systems (long; most of it wants root)
#   make crash-sample  a sample of that with a fixed seed, in under ten minutes (CI runs it)
#   make soak    roadmaps driven to done while the driver, the workers and the database are killed (long)
#   make bench   ratios against peers on this machine
#   make clean   back to what was cloned

# Tests must see the installed package and start programs as a user would.
# PYTHONDONTWRITEBYTECODE makes each start two to three times slower.
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
JOBS ?= 2
MISSING ?= fail
BENCHMARKS ?= $(filter-out benchmarks/_%,$(sort $(wildcard benchmarks/*.py)))
# Real servers and tools that tests start themselves; a test whose tool is missing says so.
TEST_PACKAGES := strace rsync bubblewrap libseccomp2 openssh-client openssh-server postgresql redis-server \
	btrfs-progs xfsprogs
OFTEN := not crash_full and not bench and not agents and not soak and not long
SELDOM := long and not crash_full and not soak and not agents
RARELY := (crash or crash_full)
# Kills, equality, capture and agents: these files run on each of the file systems.
FILE_SYSTEMS := ext4 xfs btrfs tmpfs overlayfs
ON_EACH := $(addprefix tests/,crash/test_kill.py crash/test_kill_in_recovery.py crash/test_delegation.py \
	engine/test_equality.py engine/test_delegation.py workspace/test_capture.py workspace/test_capture_ignored.py \
	workspace/test_shadow.py workspace/test_shadow_same.py)
ANY := not bench and not agents and not soak

.PHONY: demo test test-long test-agents check bench crash crash-sample soak clean venv
.NOTPARALLEL:

demo: venv
	@scripts/system-packages bubblewrap || true
	@$(BIN)/holdfast demo

test: check
	@scripts/system-packages $(TEST_PACKAGES) || true
	$(PYTEST) -n $(JOBS) -m "$(OFTEN) and not serial"
	@# 5: no test is marked serial.
	$(PYTEST) -m "$(OFTEN) and serial" || [ $$? -eq 5 ]

# Whole runs, real databases: what would make `make test` too long to be run often.
test-long: venv
	@scripts/system-packages $(TEST_PACKAGES) || true
	MISSING=$(MISSING) $(PYTEST) -n $(JOBS) -m "$(SELDOM) and not serial"
	$(PYTEST) -m "$(SELDOM) and serial" || [ $$? -eq 5 ]

# Real agent programs against a scripted model. What is missing is named, and the run fails (MISSING=tell: see the script).
test-agents: venv
	@scripts/system-packages bubblewrap libseccomp2 || true
	@scripts/agent-tests $(MISSING) $(PYTEST)

check: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src

crash: venv
	@scripts/system-packages strace bubblewrap libseccomp2 xfsprogs btrfs-progs || true
	@# Some of these take seconds and some take minutes: who is done takes over from who is not.
	$(PYTEST) -n $(JOBS) --dist worksteal -m "$(RARELY) and not serial"
	$(PYTEST) -m "$(RARELY) and serial" || [ $$? -eq 5 ]
	@# A kill before a call that only reads leaves what a kill before the next change does: once, in memory, is enough.
	@set -e; for kind in $(FILE_SYSTEMS); do echo "== on $$kind"; \
	$(PYTEST) -n $(JOBS) --dist worksteal --file-system $$kind -m "$(ANY)" $(ON_EACH) \
	--deselect tests/crash/test_kill.py::test_killed_at_every_call; done

# Root must have the tools: without them the file systems would be skipped, and nobody would see it.
crash-sample: venv
	@scripts/system-packages bubblewrap libseccomp2 xfsprogs btrfs-progs || [ $$(id -u) -ne 0 ]
	@set -e; for kind in $(FILE_SYSTEMS); do echo "== on $$kind"; \
	$(PYTEST) -n $(JOBS) --dist worksteal --file-system $$kind --sample 4 -m "$(ANY)" $(ON_EACH) \
	--deselect tests/crash/test_kill.py::test_killed_at_every_call; done
	$(PYTEST) -n $(JOBS) --dist worksteal --sample 6 -m "$(ANY)" tests/crash/test_power.py
	@# What fails its health check is taken back: errors strike on the way back too, and after it.
	$(PYTEST) -n $(JOBS) --sample 100 -m "$(ANY)" tests/crash/test_errors.py -k "few-unhealthy or many-unhealthy"

soak: venv
	@scripts/system-packages bubblewrap libseccomp2 postgresql || true
	$(PYTEST) -m soak

bench: venv
	@scripts/system-packages rsync bubblewrap libseccomp2 || true
	@test -n "$(BENCHMARKS)" || { echo "there is nothing in benchmarks/" >&2; exit 1; }
	@set -e; for script in $(BENCHMARKS); do echo "== $$script"; $(BIN)/python "$$script"; done

clean:
	rm -rf .venv build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache .coverage .coverage.*
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# Decides by itself whether there is anything to do (a few milliseconds when there is not).
venv:
	@scripts/bootstrap
